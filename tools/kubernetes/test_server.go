// Package testserver replaces the package of that name in Kubernetes
// (k8s.io/apiserver/pkg/storage/etcd3/testserver) and starts a Quorate node instead of etcd. Used
// by `cargo xtask etcd kubernetes`.
package testserver

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"
)

// NewTestConfig returns settings for etcd, of which only the folder is used.
func NewTestConfig(t testing.TB) *embed.Config {
	config := embed.NewConfig()
	config.Dir = t.TempDir()
	return config
}

// RunEtcd starts a node, which is killed when the test ends, and returns a client for it.
func RunEtcd(t testing.TB, config *embed.Config) *kubernetes.Client {
	t.Helper()
	if config == nil {
		config = NewTestConfig(t)
	}
	anywhere := "127.0.0.1:0"
	node := exec.Command(os.Getenv("QUORATE"), "start", "--service", "etcd", "--store", os.Getenv("QUORATE_STORE"),
		"--data", config.Dir+"/data", "--peer", anywhere, "--client", anywhere, "--admin", anywhere)
	said, err := node.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = node.Process.Kill()
		_ = node.Wait()
	})
	ready, err := bufio.NewReader(said).ReadString('\n')
	if err != nil {
		t.Fatalf("the node ended before it was ready: %v", err)
	}
	endpoint := ""
	for _, word := range strings.Fields(ready) {
		if address, found := strings.CutPrefix(word, "client="); found {
			endpoint = address
		}
	}
	client, err := kubernetes.New(clientv3.Config{
		Endpoints:   []string{endpoint},
		DialTimeout: 10 * time.Second,
		DialOptions: []grpc.DialOption{grpc.WithBlock()},
	})
	if err != nil {
		t.Fatal(err)
	}
	client.KV = storagetesting.NewKVRecorder(client.KV)
	client.Kubernetes = storagetesting.NewKubernetesRecorder(client.Kubernetes)
	return client
}
