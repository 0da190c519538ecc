// Unmodified etcd clients against a cluster of Quorate. `etcdclient ctl …` is etcdctl; `etcdclient
// history …` writes and watches while members are killed; `etcdclient ENDPOINT…` tests the Go
// client with its locks, elections and software transactional memory.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.etcd.io/etcd/etcdctl/v3/ctlv3"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "ctl" {
		os.Args = append(os.Args[:1], os.Args[2:]...)
		ctlv3.MustStart()
		return
	}
	if len(os.Args) > 2 && os.Args[1] == "history" {
		seconds, err := strconv.Atoi(os.Args[2])
		if err == nil {
			err = runHistory(seconds, os.Args[3:])
		}
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	for _, trial := range []struct {
		name string
		run  func(context.Context, *clientv3.Client) error
	}{
		{"keys and revisions", keys},
		{"compaction", compaction},
		{"watch", watch},
		{"lease", lease},
		{"mutex", mutex},
		{"election", election},
		{"transactions in memory", stm},
	} {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		client, err := clientv3.New(clientv3.Config{Endpoints: os.Args[1:], DialTimeout: 10 * time.Second})
		if err == nil {
			err = trial.run(ctx, client)
			client.Close()
		}
		cancel()
		if err != nil {
			fmt.Printf("%s: %v\n", trial.name, err)
			os.Exit(1)
		}
		fmt.Println("done:", trial.name)
	}
}

func check(holds bool, what string, more ...any) error {
	if holds {
		return nil
	}
	return fmt.Errorf(what, more...)
}

func keys(ctx context.Context, client *clientv3.Client) error {
	put, err := client.Put(ctx, "keys/a", "1")
	if err != nil {
		return err
	}
	first := put.Header.Revision
	for number := range 20 {
		if _, err := client.Put(ctx, fmt.Sprintf("keys/%02d", number), "x"); err != nil {
			return err
		}
	}
	got, err := client.Get(ctx, "keys/", clientv3.WithPrefix(), clientv3.WithLimit(5),
		clientv3.WithSort(clientv3.SortByModRevision, clientv3.SortDescend))
	if err != nil {
		return err
	}
	if err := check(got.Count == 21 && got.More && len(got.Kvs) == 5 && string(got.Kvs[0].Key) == "keys/19",
		"a range says %v", got); err != nil {
		return err
	}
	past, err := client.Get(ctx, "keys/", clientv3.WithPrefix(), clientv3.WithRev(first))
	if err != nil {
		return err
	}
	if err := check(past.Count == 1, "the past has %d keys", past.Count); err != nil {
		return err
	}
	txn, err := client.Txn(ctx).
		If(clientv3.Compare(clientv3.Version("keys/a"), "=", 1), clientv3.Compare(clientv3.CreateRevision("keys/b"), "=", 0)).
		Then(clientv3.OpPut("keys/b", "2"), clientv3.OpGet("keys/a"), clientv3.OpDelete("keys/00", clientv3.WithPrevKV())).
		Commit()
	if err != nil {
		return err
	}
	return check(txn.Succeeded && txn.Responses[2].GetResponseDeleteRange().Deleted == 1, "a transaction says %v", txn)
}

func compaction(ctx context.Context, client *clientv3.Client) error {
	put, err := client.Put(ctx, "compacted", "1")
	if err != nil {
		return err
	}
	revision := put.Header.Revision
	if _, err := client.Put(ctx, "compacted", "2"); err != nil {
		return err
	}
	if _, err := client.Compact(ctx, revision+1, clientv3.WithCompactPhysical()); err != nil {
		return err
	}
	_, err = client.Get(ctx, "compacted", clientv3.WithRev(revision))
	if err := check(errors.Is(err, rpctypes.ErrCompacted), "the past is %v", err); err != nil {
		return err
	}
	_, err = client.Get(ctx, "compacted", clientv3.WithRev(revision+1000))
	if err := check(errors.Is(err, rpctypes.ErrFutureRev), "the future is %v", err); err != nil {
		return err
	}
	answer := <-client.Watch(ctx, "compacted", clientv3.WithRev(revision))
	return check(answer.Canceled && answer.CompactRevision == revision+1, "a watch of the past says %v", answer)
}

func watch(ctx context.Context, client *clientv3.Client) error {
	watching := client.Watch(ctx, "watch/", clientv3.WithPrefix(), clientv3.WithPrevKV(), clientv3.WithCreatedNotify())
	<-watching
	const puts = 500
	var writers sync.WaitGroup
	for writer := range 5 {
		writers.Add(1)
		go func() {
			defer writers.Done()
			for range puts / 5 {
				_, _ = client.Put(ctx, fmt.Sprintf("watch/%d", writer), "x")
			}
		}()
	}
	seen, last := 0, int64(0)
	for seen < puts {
		answer, open := <-watching
		if !open || answer.Err() != nil {
			return fmt.Errorf("the watch ended: %v", answer.Err())
		}
		for _, event := range answer.Events {
			if err := check(event.Kv.ModRevision > last, "revision %d after %d", event.Kv.ModRevision, last); err != nil {
				return err
			}
			if err := check(event.IsCreate() || event.PrevKv != nil, "nothing before %v", event); err != nil {
				return err
			}
			last = event.Kv.ModRevision
			seen++
		}
	}
	writers.Wait()
	return nil
}

func lease(ctx context.Context, client *clientv3.Client) error {
	granted, err := client.Grant(ctx, 2)
	if err != nil {
		return err
	}
	if _, err := client.Put(ctx, "leased", "x", clientv3.WithLease(granted.ID)); err != nil {
		return err
	}
	alive, stop := context.WithCancel(ctx)
	kept, err := client.KeepAlive(alive, granted.ID)
	if err != nil {
		stop()
		return err
	}
	go func() {
		for range kept {
		}
	}()
	time.Sleep(4 * time.Second)
	got, err := client.Get(ctx, "leased")
	if err == nil {
		err = check(got.Count == 1, "a lease that is kept alive ended")
	}
	if err != nil {
		stop()
		return err
	}
	watching := client.Watch(ctx, "leased", clientv3.WithRev(got.Header.Revision+1))
	stop()
	stopped := time.Now()
	answer := <-watching
	took := time.Since(stopped)
	return check(len(answer.Events) == 1 && answer.Events[0].Type == clientv3.EventTypeDelete && took < 4*time.Second,
		"a lease that nobody keeps alive: %v after %v", answer, took)
}

func mutex(ctx context.Context, client *clientv3.Client) error {
	const sessions, rounds = 4, 10
	inside, total := 0, 0
	var running sync.WaitGroup
	failures := make(chan error, sessions)
	for range sessions {
		running.Add(1)
		go func() {
			defer running.Done()
			session, err := concurrency.NewSession(client, concurrency.WithTTL(10))
			if err != nil {
				failures <- err
				return
			}
			defer session.Close()
			lock := concurrency.NewMutex(session, "mutex/")
			for range rounds {
				if err := lock.Lock(ctx); err != nil {
					failures <- err
					return
				}
				inside++
				if inside != 1 {
					failures <- errors.New("two hold the lock")
				}
				total++
				inside--
				if err := lock.Unlock(ctx); err != nil {
					failures <- err
					return
				}
			}
		}()
	}
	running.Wait()
	select {
	case err := <-failures:
		return err
	default:
		return check(total == sessions*rounds, "%d rounds", total)
	}
}

func election(ctx context.Context, client *clientv3.Client) error {
	for _, name := range []string{"one", "other"} {
		session, err := concurrency.NewSession(client, concurrency.WithTTL(5))
		if err != nil {
			return err
		}
		election := concurrency.NewElection(session, "election/")
		if err := election.Campaign(ctx, name); err != nil {
			return err
		}
		leader, err := election.Leader(ctx)
		if err != nil {
			return err
		}
		if err := check(string(leader.Kvs[0].Value) == name, "%s leads", leader.Kvs[0].Value); err != nil {
			return err
		}
		if err := election.Resign(ctx); err != nil {
			return err
		}
		session.Close()
	}
	return nil
}

func stm(ctx context.Context, client *clientv3.Client) error {
	const writers, rounds = 4, 10
	var running sync.WaitGroup
	failures := make(chan error, writers)
	for range writers {
		running.Add(1)
		go func() {
			defer running.Done()
			for range rounds {
				_, err := concurrency.NewSTM(client, func(keys concurrency.STM) error {
					keys.Put("stm", keys.Get("stm")+"x")
					return nil
				}, concurrency.WithAbortContext(ctx))
				if err != nil {
					failures <- err
					return
				}
			}
		}()
	}
	running.Wait()
	select {
	case err := <-failures:
		return err
	default:
	}
	got, err := client.Get(ctx, "stm")
	if err != nil {
		return err
	}
	return check(len(got.Kvs[0].Value) == writers*rounds, "%d characters", len(got.Kvs[0].Value))
}
