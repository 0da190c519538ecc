// hashicorp/raft with its own TCP transport, and with hashicorp/raft-wal (durable) or its own
// in-memory store (volatile). We add a front for clients and a state machine that counts.
package main

import (
	"encoding/binary"
	"errors"
	"io"
	"log"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"

	"quorate/compare/front"
)

// Commands appended together. The library's default is 64 and its limit 1024; this is the most that
// can be outstanding here.
const appendEntriesMax = 256

func main() {
	flags := front.ParseFlags()
	machine := &machine{}
	node, err := start(flags, machine)
	if err != nil {
		log.Fatal(err)
	}
	submit := func(command []byte) front.Future {
		return future{node.Apply(command, 0)}
	}
	if err := front.Serve(flags.Client, submit); err != nil {
		log.Fatal(err)
	}
	front.Run(&machine.applied, func() int {
		_, id := node.LeaderWithID()
		number, _ := strconv.Atoi(string(id))
		return number
	})
}

func start(flags front.Flags, machine *machine) (*raft.Raft, error) {
	config := raft.DefaultConfig()
	config.LocalID = id(flags.Node)
	config.BatchApplyCh = true
	config.MaxAppendEntries = appendEntriesMax
	config.Logger = hclog.New(&hclog.LoggerOptions{Output: os.Stderr, Level: hclog.Warn})
	transport, err := raft.NewTCPTransportWithLogger(flags.Peers[flags.Node-1], nil, 3, 10*time.Second, config.Logger)
	if err != nil {
		return nil, err
	}
	logs, stable, snapshots, err := stores(flags, config.Logger)
	if err != nil {
		return nil, err
	}
	var members raft.Configuration
	for place, address := range flags.Peers {
		members.Servers = append(members.Servers, raft.Server{ID: id(place + 1), Address: raft.ServerAddress(address)})
	}
	if err := raft.BootstrapCluster(config, logs, stable, snapshots, transport, members); err != nil {
		return nil, err
	}
	return raft.NewRaft(config, machine, logs, stable, snapshots, transport)
}

func stores(flags front.Flags, logger hclog.Logger) (raft.LogStore, raft.StableStore, raft.SnapshotStore, error) {
	if !flags.Durable {
		store := raft.NewInmemStore()
		return store, store, raft.NewInmemSnapshotStore(), nil
	}
	folder := filepath.Join(flags.Folder, "wal")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, nil, nil, err
	}
	store, err := wal.Open(folder)
	if err != nil {
		return nil, nil, nil, err
	}
	snapshots, err := raft.NewFileSnapshotStoreWithLogger(flags.Folder, 2, logger)
	return store, store, snapshots, err
}

func id(node int) raft.ServerID {
	return raft.ServerID(strconv.Itoa(node))
}

type future struct{ inner raft.ApplyFuture }

func (f future) Wait() (uint64, error) {
	if err := f.inner.Error(); err != nil {
		return 0, err
	}
	return f.inner.Index(), nil
}

// machine applies committed commands in batches.
type machine struct{ applied front.Applied }

func (m *machine) Apply(entry *raft.Log) any {
	m.applied.Apply(entry.Data)
	return nil
}

func (m *machine) ApplyBatch(entries []*raft.Log) []any {
	m.applied.ApplyAll(func(add func([]byte)) {
		for _, entry := range entries {
			if entry.Type == raft.LogCommand {
				add(entry.Data)
			}
		}
	})
	return make([]any, len(entries))
}

func (m *machine) Snapshot() (raft.FSMSnapshot, error) {
	count, digest := m.applied.State()
	return state{count, digest}, nil
}

func (m *machine) Restore(from io.ReadCloser) error {
	defer from.Close()
	var bytes [16]byte
	if _, err := io.ReadFull(from, bytes[:]); err != nil {
		return err
	}
	m.applied.Restore(binary.LittleEndian.Uint64(bytes[:8]), binary.LittleEndian.Uint64(bytes[8:]))
	return nil
}

type state struct{ count, digest uint64 }

func (s state) Persist(sink raft.SnapshotSink) error {
	bytes := binary.LittleEndian.AppendUint64(nil, s.count)
	bytes = binary.LittleEndian.AppendUint64(bytes, s.digest)
	if _, err := sink.Write(bytes); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

func (state) Release() {}
