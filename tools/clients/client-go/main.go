// Creates a VM with the dynamic client of client-go, waits until it runs, patches it, pauses it and
// deletes it.
//
// usage: client-go MANIFEST NAMESPACE
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"
)

var resource = schema.GroupVersionResource{
	Group: "kubevirt.io", Version: "v1", Resource: "virtualmachines",
}

func main() {
	manifest, namespace := os.Args[1], os.Args[2]
	ctx, cancel := context.WithTimeout(context.Background(), 6*time.Minute)
	defer cancel()

	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		clientcmd.NewDefaultClientConfigLoadingRules(), nil).ClientConfig()
	must(err)
	client, err := dynamic.NewForConfig(config)
	must(err)
	vms := client.Resource(resource).Namespace(namespace)

	text, err := os.ReadFile(manifest)
	must(err)
	vm := &unstructured.Unstructured{}
	must(yaml.Unmarshal(text, &vm.Object))
	name := vm.GetName()
	_, err = vms.Create(ctx, vm, v1.CreateOptions{})
	must(err)

	list, err := vms.List(ctx, v1.ListOptions{})
	must(err)
	if len(list.Items) != 1 || list.Items[0].GetName() != name {
		log.Fatalf("the list is not %s alone: %v", name, list.Items)
	}

	wait(ctx, vms, name, func(event watch.Event, status string) bool { return status == "Running" })
	patch := []byte(`{"metadata":{"labels":{"patched":"yes"}}}`)
	patched, err := vms.Patch(ctx, name, types.MergePatchType, patch, v1.PatchOptions{})
	must(err)
	if patched.GetLabels()["patched"] != "yes" {
		log.Fatalf("not patched: %v", patched.GetLabels())
	}

	// Subresources belong to a group of their own.
	rest := kubernetes.NewForConfigOrDie(config).RESTClient()
	call := func(verb string) {
		must(rest.Put().AbsPath("/apis/subresources.kubevirt.io/v1/namespaces", namespace,
			"virtualmachineinstances", name, verb).Body([]byte("{}")).Do(ctx).Error())
	}
	call("pause")
	wait(ctx, vms, name, func(event watch.Event, status string) bool { return status == "Paused" })
	call("unpause")

	must(vms.Delete(ctx, name, v1.DeleteOptions{}))
	wait(ctx, vms, name, func(event watch.Event, status string) bool { return event.Type == watch.Deleted })
}

// wait follows the VM until an event is the expected one.
func wait(ctx context.Context, vms dynamic.ResourceInterface, name string, reached func(watch.Event, string) bool) {
	selector := fields.OneTermEqualSelector("metadata.name", name).String()
	events, err := vms.Watch(ctx, v1.ListOptions{FieldSelector: selector})
	must(err)
	defer events.Stop()
	for event := range events.ResultChan() {
		vm, ok := event.Object.(*unstructured.Unstructured)
		if !ok {
			log.Fatalf("the watch failed: %v", event.Object)
		}
		status, _, err := unstructured.NestedString(vm.Object, "status", "printableStatus")
		must(err)
		fmt.Printf("%s %s: %s\n", event.Type, name, status)
		if reached(event, status) {
			return
		}
	}
	log.Fatalf("the watch of %s ended: %v", name, ctx.Err())
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
