//go:build e2e

// The clusters with which etcd's common tests are run, in place of its own list: nodes of ours have the same certificates for
// clients and peers, and sign none by themselves.

package common

import (
	"go.etcd.io/etcd/tests/v3/framework"
	"go.etcd.io/etcd/tests/v3/framework/config"
	"go.etcd.io/etcd/tests/v3/framework/e2e"
)

func init() {
	testRunner = framework.E2eTestRunner
	clusterTestCases = func() []testCase {
		return []testCase{
			{name: "Alone", config: config.ClusterConfig{ClusterSize: 1}},
			{name: "Three", config: config.ClusterConfig{ClusterSize: 3}},
		}
	}
}

func WithAuth(userName, password string) config.ClientOption {
	return e2e.WithAuth(userName, password)
}

func WithEndpoints(endpoints []string) config.ClientOption {
	return e2e.WithEndpoints(endpoints)
}
