// Creates a VM with KubeVirt's own Go client, waits until it runs, patches it, uses its console, pauses it
// and deletes it.
//
// usage: kubevirt-client MANIFEST NAMESPACE
package main

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/clientcmd"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/client-go/kubecli"
	typed "kubevirt.io/client-go/kubevirt/typed/core/v1"
	"sigs.k8s.io/yaml"
)

func main() {
	manifest, namespace := os.Args[1], os.Args[2]
	ctx, cancel := context.WithTimeout(context.Background(), 6*time.Minute)
	defer cancel()

	client, err := kubecli.GetKubevirtClientFromClientConfig(
		clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
			clientcmd.NewDefaultClientConfigLoadingRules(), nil))
	must(err)
	vms, vmis := client.VirtualMachine(namespace), client.VirtualMachineInstance(namespace)

	text, err := os.ReadFile(manifest)
	must(err)
	vm := &v1.VirtualMachine{}
	must(yaml.UnmarshalStrict(text, vm))
	name := vm.Name
	_, err = vms.Create(ctx, vm, metav1.CreateOptions{})
	must(err)

	list, err := vms.List(ctx, metav1.ListOptions{})
	must(err)
	if len(list.Items) != 1 || list.Items[0].Name != name {
		log.Fatalf("the list is not %s alone: %v", name, list.Items)
	}

	wait(ctx, vms, name, func(event watch.Event, vm *v1.VirtualMachine) bool {
		return vm.Status.PrintableStatus == v1.VirtualMachineStatusRunning
	})
	patch := []byte(`{"metadata":{"labels":{"patched":"yes"}}}`)
	patched, err := vms.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	must(err)
	if patched.Labels["patched"] != "yes" {
		log.Fatalf("not patched: %v", patched.Labels)
	}

	console(vmis, name)
	must(vmis.Pause(ctx, name, &v1.PauseOptions{}))
	wait(ctx, vms, name, func(event watch.Event, vm *v1.VirtualMachine) bool {
		return vm.Status.PrintableStatus == v1.VirtualMachineStatusPaused
	})
	must(vmis.Unpause(ctx, name, &v1.UnpauseOptions{}))

	must(vms.Delete(ctx, name, metav1.DeleteOptions{}))
	wait(ctx, vms, name, func(event watch.Event, vm *v1.VirtualMachine) bool {
		return event.Type == watch.Deleted
	})
}

// console connects to the serial console and waits for the shell's prompt.
func console(vmis kubecli.VirtualMachineInstanceInterface, name string) {
	stream, err := vmis.SerialConsole(name, &typed.SerialConsoleOptions{ConnectionTimeout: time.Minute})
	must(err)
	connection := stream.AsConn()
	defer connection.Close()
	var shown []byte
	for end := time.Now().Add(3 * time.Minute); time.Now().Before(end); {
		_, err := connection.Write([]byte("\n"))
		must(err)
		part := make([]byte, 4096)
		count, err := connection.Read(part)
		must(err)
		shown = append(shown, part[:count]...)
		if bytes.Contains(shown, []byte("# ")) {
			return
		}
	}
	log.Fatalf("the console of %s shows no prompt: %q", name, shown)
}

// wait follows the VM until an event is the expected one.
func wait(ctx context.Context, vms kubecli.VirtualMachineInterface, name string, reached func(watch.Event, *v1.VirtualMachine) bool) {
	events, err := vms.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	must(err)
	defer events.Stop()
	for event := range events.ResultChan() {
		vm, ok := event.Object.(*v1.VirtualMachine)
		if !ok {
			log.Fatalf("the watch failed: %v", event.Object)
		}
		fmt.Printf("%s %s: %s\n", event.Type, name, vm.Status.PrintableStatus)
		if reached(event, vm) {
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
