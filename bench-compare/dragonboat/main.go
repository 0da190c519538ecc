// Dragonboat with its own transport and its own log storage (Pebble). We add a front for clients
// and a state machine that counts. Its log is always on disk.
package main

import (
	"encoding/binary"
	"errors"
	"io"
	"log"
	"time"

	"github.com/lni/dragonboat/v3"
	"github.com/lni/dragonboat/v3/client"
	"github.com/lni/dragonboat/v3/config"
	"github.com/lni/dragonboat/v3/logger"
	"github.com/lni/dragonboat/v3/statemachine"

	"quorate/compare/front"
)

const (
	cluster = 1
	// As in the project's own examples.
	rttMilliseconds = 200
	electionRTT     = 10
	heartbeatRTT    = 1
	patience        = 10 * time.Second
)

var errNotApplied = errors.New("not applied")

func main() {
	flags := front.ParseFlags()
	if !flags.Durable {
		log.Fatal("Dragonboat has no log in memory")
	}
	for _, name := range []string{"raft", "rsm", "transport", "grpc", "raftpb", "logdb", "dragonboat", "config", "settings", "utils", "server"} {
		logger.GetLogger(name).SetLevel(logger.WARNING)
	}
	var applied front.Applied
	host, err := start(flags, &applied)
	if err != nil {
		log.Fatal(err)
	}
	session := host.GetNoOPSession(cluster)
	submit := func(command []byte) front.Future { return propose(host, session, command) }
	if err := front.Serve(flags.Client, submit); err != nil {
		log.Fatal(err)
	}
	front.Run(&applied, func() int {
		leader, known, err := host.GetLeaderID(cluster)
		if err != nil || !known {
			return 0
		}
		return int(leader)
	})
}

func start(flags front.Flags, applied *front.Applied) (*dragonboat.NodeHost, error) {
	host, err := dragonboat.NewNodeHost(config.NodeHostConfig{
		WALDir:         flags.Folder,
		NodeHostDir:    flags.Folder,
		RTTMillisecond: rttMilliseconds,
		RaftAddress:    flags.Peers[flags.Node-1],
	})
	if err != nil {
		return nil, err
	}
	members := map[uint64]dragonboat.Target{}
	for place, address := range flags.Peers {
		members[uint64(place+1)] = address
	}
	create := func(uint64, uint64) statemachine.IStateMachine { return machine{applied} }
	return host, host.StartCluster(members, false, create, config.Config{
		NodeID:       uint64(flags.Node),
		ClusterID:    cluster,
		ElectionRTT:  electionRTT,
		HeartbeatRTT: heartbeatRTT,
		CheckQuorum:  true,
	})
}

func propose(host *dragonboat.NodeHost, session *client.Session, command []byte) front.Future {
	for {
		state, err := host.Propose(session, command, patience)
		if errors.Is(err, dragonboat.ErrSystemBusy) {
			time.Sleep(time.Millisecond)
			continue
		}
		return future{state, err}
	}
}

type future struct {
	state *dragonboat.RequestState
	err   error
}

func (f future) Wait() (uint64, error) {
	if f.err != nil {
		return 0, f.err
	}
	defer f.state.Release()
	result := <-f.state.ResultC()
	if !result.Completed() {
		return 0, errNotApplied
	}
	return result.GetResult().Value, nil
}

type machine struct{ applied *front.Applied }

func (m machine) Update(command []byte) (statemachine.Result, error) {
	m.applied.Apply(command)
	return statemachine.Result{}, nil
}

func (m machine) Lookup(any) (any, error) { return nil, nil }

func (m machine) SaveSnapshot(to io.Writer, _ statemachine.ISnapshotFileCollection, _ <-chan struct{}) error {
	count, digest := m.applied.State()
	return errors.Join(binary.Write(to, binary.LittleEndian, count), binary.Write(to, binary.LittleEndian, digest))
}

func (m machine) RecoverFromSnapshot(from io.Reader, _ []statemachine.SnapshotFile, _ <-chan struct{}) error {
	var count, digest uint64
	err := errors.Join(binary.Read(from, binary.LittleEndian, &count), binary.Read(from, binary.LittleEndian, &digest))
	m.applied.Restore(count, digest)
	return err
}

func (m machine) Close() error { return nil }
