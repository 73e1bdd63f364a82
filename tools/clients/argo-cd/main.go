// Prints the health that Argo CD sees in an object: its own scripts are taken from its module.
//
// usage: kubectl get vm NAME --output json | argo-cd
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strings"

	customizations "github.com/argoproj/argo-cd/v3/resource_customizations"
	lua "github.com/yuin/gopher-lua"
)

func main() {
	var object map[string]any
	if err := json.NewDecoder(os.Stdin).Decode(&object); err != nil {
		log.Fatal(err)
	}
	script, err := customizations.Embedded.ReadFile(path(object))
	if err != nil {
		log.Fatal(err)
	}
	state := lua.NewState()
	defer state.Close()
	state.SetGlobal("obj", value(state, object))
	if err := state.DoString(string(script)); err != nil {
		log.Fatal(err)
	}
	health, ok := state.Get(-1).(*lua.LTable)
	if !ok {
		log.Fatalf("the script returned %s", state.Get(-1).Type())
	}
	fmt.Printf("%s: %s\n", health.RawGetString("status"), health.RawGetString("message"))
}

// path is where Argo CD keeps the script of a kind.
func path(object map[string]any) string {
	version, _ := object["apiVersion"].(string)
	group, _, _ := strings.Cut(version, "/")
	return fmt.Sprintf("%s/%s/health.lua", group, object["kind"])
}

// value turns a JSON value into one of Lua.
func value(state *lua.LState, from any) lua.LValue {
	switch from := from.(type) {
	case string:
		return lua.LString(from)
	case float64:
		return lua.LNumber(from)
	case bool:
		return lua.LBool(from)
	case []any:
		table := state.NewTable()
		for _, item := range from {
			table.Append(value(state, item))
		}
		return table
	case map[string]any:
		table := state.NewTable()
		for key, item := range from {
			table.RawSetString(key, value(state, item))
		}
		return table
	default:
		return lua.LNil
	}
}
