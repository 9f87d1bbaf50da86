// One program that is etcd or a part of Kubernetes, by the name of its first argument.
//
// The parts are the ones that everybody runs, as libraries of their Go modules: a control plane for tests then needs
// no image, no download of binaries and one link instead of four.
package main

import (
	"context"
	"fmt"
	"os"
	_ "time/tzdata" // Time zones of CronJobs, as the controller manager's own main has it.

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	commands := map[string]func() *cobra.Command{
		"kube-apiserver":          apiserver.NewAPIServerCommand,
		"kube-controller-manager": controllers.NewControllerManagerCommand,
		"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
		"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
	}
	part := ""
	if len(os.Args) > 1 {
		part = os.Args[1]
		os.Args = append([]string{part}, os.Args[2:]...)
	}
	if part == "etcd" {
		etcdmain.Main(os.Args)
		return
	}
	command, known := commands[part]
	if !known {
		fmt.Fprintln(os.Stderr, "plane: name a part: etcd, kube-apiserver, kube-controller-manager, kube-scheduler or kubelet")
		os.Exit(2)
	}
	os.Exit(cli.Run(command()))
}
