//go:build e2e

// Cluster configurations for etcd's common tests, replacing its own list: Quorate's nodes use the
// same certificates for clients and peers, and do not sign their own.

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
