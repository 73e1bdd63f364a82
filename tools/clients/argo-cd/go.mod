module ferrovirt/tools/clients/argo-cd

go 1.26.0

require (
	github.com/argoproj/argo-cd/v3 v3.2.0
	github.com/yuin/gopher-lua v1.1.1
)
