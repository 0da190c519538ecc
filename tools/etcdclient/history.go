package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// `etcdclient history SECONDS ENDPOINT…`: runs writers and watchers at every member while the
// caller kills members. At the end, everything acknowledged must be in the history of every member
// once, at the revision reported. Nothing that was refused may be there twice, and every watcher
// must have seen exactly that history, in order.
type history struct {
	endpoints []string
	mutex     sync.Mutex
	// Reported revision by key, or 0 if unknown.
	puts map[string]int64
	// For successful swaps: the revision that was replaced.
	swaps   map[int64]int64
	unknown int
}

const (
	prefix = "history/"
	shared = prefix + "shared"
)

type event struct {
	revision int64
	key      string
	value    string
}

func runHistory(seconds int, endpoints []string) error {
	h := &history{endpoints: endpoints, puts: map[string]int64{}, swaps: map[int64]int64{}}
	first, err := h.ready()
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	writing, over := context.WithTimeout(ctx, time.Duration(seconds)*time.Second)
	defer over()
	defer stop()
	var writers, watchers sync.WaitGroup
	seen := make([][]event, len(endpoints))
	end := make(chan int64)
	for member, endpoint := range endpoints {
		for number := range 4 {
			writers.Add(1)
			go func() {
				defer writers.Done()
				h.put(writing, endpoint, fmt.Sprintf("%d-%d", member, number))
			}()
		}
		writers.Add(1)
		go func() {
			defer writers.Done()
			h.swap(writing, endpoint)
		}()
		watchers.Add(1)
		go func() {
			defer watchers.Done()
			// Starts at its own member, and falls back to any.
			order := append([]string{endpoint}, endpoints...)
			seen[member] = h.watch(ctx, order, first+1, end)
		}()
	}
	writers.Wait()
	last, err := h.ready()
	if err != nil {
		return err
	}
	for range endpoints {
		end <- last
	}
	watchers.Wait()
	all := make([][]event, len(endpoints))
	for member, endpoint := range endpoints {
		ended := make(chan int64, 1)
		ended <- last
		late, cancel := context.WithTimeout(ctx, time.Minute)
		all[member] = h.watch(late, []string{endpoint}, first+1, ended)
		cancel()
		if err := same(all[0], all[member]); err != nil {
			return fmt.Errorf("the history of member %d is not that of member 1: %w", member+1, err)
		}
		if err := same(all[0], seen[member]); err != nil {
			return fmt.Errorf("the watcher that began at member %d did not see the history: %w", member+1, err)
		}
	}
	return h.holds(all[0])
}

// ready waits until every member answers, and returns the revision.
func (h *history) ready() (int64, error) {
	revision := int64(0)
	for _, endpoint := range h.endpoints {
		client, err := connect(endpoint)
		if err != nil {
			return 0, err
		}
		defer client.Close()
		begun := time.Now()
		for {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			got, err := client.Get(ctx, "ready")
			cancel()
			if err == nil {
				revision = got.Header.Revision
				break
			}
			if time.Since(begun) > time.Minute {
				return 0, fmt.Errorf("%s does not answer: %w", endpoint, err)
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	return revision, nil
}

func connect(endpoints ...string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints:            endpoints,
		DialTimeout:          10 * time.Second,
		DialKeepAliveTime:    2 * time.Second,
		DialKeepAliveTimeout: time.Second,
	})
}

// put puts each key once.
func (h *history) put(ctx context.Context, endpoint, name string) {
	client, err := connect(endpoint)
	if err != nil {
		return
	}
	defer client.Close()
	for number := 0; ctx.Err() == nil; number++ {
		key := fmt.Sprintf("%s%s/%d", prefix, name, number)
		asked, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		done, err := client.Put(asked, key, key)
		cancel()
		h.mutex.Lock()
		h.puts[key] = 0
		if err == nil {
			h.puts[key] = done.Header.Revision
		} else {
			h.unknown++
		}
		h.mutex.Unlock()
		if err != nil {
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// swap replaces the key that all writers share, if it has not changed since it was read.
func (h *history) swap(ctx context.Context, endpoint string) {
	client, err := connect(endpoint)
	if err != nil {
		return
	}
	defer client.Close()
	for ctx.Err() == nil {
		asked, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		got, err := client.Get(asked, shared)
		if err == nil {
			before := int64(0)
			if len(got.Kvs) == 1 {
				before = got.Kvs[0].ModRevision
			}
			var done *clientv3.TxnResponse
			done, err = client.Txn(asked).
				If(clientv3.Compare(clientv3.ModRevision(shared), "=", before)).
				Then(clientv3.OpPut(shared, fmt.Sprint(before))).
				Commit()
			if err == nil && done.Succeeded {
				h.mutex.Lock()
				h.swaps[done.Header.Revision] = before
				h.mutex.Unlock()
			}
		}
		cancel()
		if err != nil {
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// watch returns the events from a revision on, up to the revision that `end` delivers.
func (h *history) watch(ctx context.Context, endpoints []string, from int64, end <-chan int64) []event {
	client, err := connect(endpoints...)
	if err != nil {
		return nil
	}
	defer client.Close()
	var events []event
	last := int64(-1)
	watching := client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(from), clientv3.WithProgressNotify())
	ticks := time.NewTicker(200 * time.Millisecond)
	defer ticks.Stop()
	for {
		select {
		case revision := <-end:
			last, end = revision, nil
		case <-ticks.C:
			if last >= 0 {
				_ = client.RequestProgress(ctx)
			}
		case answer, open := <-watching:
			if !open || answer.Err() != nil {
				return events
			}
			for _, one := range answer.Events {
				events = append(events, event{one.Kv.ModRevision, string(one.Kv.Key), string(one.Kv.Value)})
			}
			// All events up to that revision have arrived.
			if last >= 0 && answer.IsProgressNotify() && answer.Header.Revision >= last {
				return before(events, last)
			}
		}
	}
}

// before drops events after `last`: a write that timed out may take effect at any time.
func before(events []event, last int64) []event {
	for len(events) > 0 && events[len(events)-1].revision > last {
		events = events[:len(events)-1]
	}
	return events
}

func same(one, other []event) error {
	for number := range min(len(one), len(other)) {
		if one[number] != other[number] {
			return fmt.Errorf("%v where %v is", other[number], one[number])
		}
	}
	return check(len(one) == len(other), "%d events of %d", len(other), len(one))
}

// holds returns an error if an acknowledged write is missing, or a write is there twice.
func (h *history) holds(all []event) error {
	places, swaps := map[string]int64{}, map[int64]string{}
	last, swapped := int64(0), int64(0)
	for _, one := range all {
		if one.revision <= last {
			return fmt.Errorf("revision %d after %d", one.revision, last)
		}
		last = one.revision
		if one.key == shared {
			if one.value != fmt.Sprint(swapped) {
				return fmt.Errorf("the swap at %d replaced %s, not %d", one.revision, one.value, swapped)
			}
			swapped = one.revision
			swaps[one.revision] = one.value
			continue
		}
		if _, twice := places[one.key]; twice {
			return fmt.Errorf("%s is there twice", one.key)
		}
		places[one.key] = one.revision
	}
	acknowledged := 0
	for key, revision := range h.puts {
		if revision == 0 {
			continue
		}
		acknowledged++
		if places[key] != revision {
			return fmt.Errorf("%s was acknowledged at %d and is at %d", key, revision, places[key])
		}
	}
	for revision, replaced := range h.swaps {
		if was, found := swaps[revision]; !found || was != fmt.Sprint(replaced) {
			return fmt.Errorf("the swap at %d is not there", revision)
		}
	}
	fmt.Printf("%d puts acknowledged, %d of unknown outcome, %d swaps, %d events\n", acknowledged, h.unknown, len(h.swaps), len(all))
	return check(acknowledged > 100 && len(h.swaps) > 10, "too little was done")
}
