// Command goclient tests go-redis and rueidis, unmodified, against the ports given as arguments.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A reply that takes longer counts as a failure.
const patience = 30 * time.Second

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	if err := try(ctx, os.Args[1:]); err != nil {
		fmt.Println("go-redis:", err)
		os.Exit(1)
	}
	if err := caching(ctx, os.Args[1:]); err != nil {
		fmt.Println("rueidis:", err)
		os.Exit(1)
	}
	fmt.Println("rueidis: cached reads, none of them stale")
	fmt.Printf("go-redis %s: RESP2 and RESP3 on %d nodes\n", redis.Version(), len(os.Args)-1)
}

func try(ctx context.Context, ports []string) error {
	if len(ports) == 0 {
		return errors.New("no ports")
	}
	for _, protocol := range []int{2, 3} {
		nodes := connect(ports, protocol)
		for index := range nodes {
			if err := commands(ctx, nodes, index, fmt.Sprintf("go:%d:%d", protocol, index)); err != nil {
				return fmt.Errorf("RESP%d, port %s: %w", protocol, ports[index], err)
			}
		}
		if err := count(ctx, nodes); err != nil {
			return err
		}
		for _, node := range nodes {
			if err := node.Close(); err != nil {
				return err
			}
		}
	}
	return nil
}

func connect(ports []string, protocol int) []*redis.Client {
	var nodes []*redis.Client
	for _, port := range ports {
		nodes = append(nodes, redis.NewClient(&redis.Options{
			Addr: "127.0.0.1:" + port, Protocol: protocol, ReadTimeout: patience, MaxRetries: -1,
		}))
	}
	return nodes
}

// expect returns an error unless a command returned the expected value.
func expect[T comparable](what string, found T, err error, expected T) error {
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if found != expected {
		return fmt.Errorf("%s: %v instead of %v", what, found, expected)
	}
	return nil
}

func commands(ctx context.Context, nodes []*redis.Client, index int, key string) error {
	node := nodes[index]
	set, err := node.Set(ctx, key, "1", 1000*time.Second).Result()
	if err := expect("SET", set, err, "OK"); err != nil {
		return err
	}
	for _, other := range nodes {
		value, err := other.Get(ctx, key).Result()
		if err := expect("GET on every node", value, err, "1"); err != nil {
			return err
		}
	}
	sum, err := node.IncrBy(ctx, key, 41).Result()
	if err := expect("INCRBY", sum, err, 42); err != nil {
		return err
	}
	both, err := node.MGet(ctx, key, "go:none").Result()
	if err := expect("MGET", fmt.Sprint(both), err, "[42 <nil>]"); err != nil {
		return err
	}
	if _, err := node.Get(ctx, "go:none").Result(); !errors.Is(err, redis.Nil) {
		return fmt.Errorf("GET of an absent key: %v", err)
	}
	if err := transaction(ctx, nodes, index, key); err != nil {
		return err
	}
	if err := node.Do(ctx, "LOLWUT").Err(); err == nil || !strings.Contains(err.Error(), "unknown command") {
		return fmt.Errorf("LOLWUT: %v", err)
	}
	found := 0
	for keys := node.Scan(ctx, 0, key, 100).Iterator(); keys.Next(ctx); {
		found++
	}
	if err := expect("SCAN", found, nil, 1); err != nil {
		return err
	}
	removed, err := node.Del(ctx, key).Result()
	return expect("DEL", removed, err, 1)
}

func transaction(ctx context.Context, nodes []*redis.Client, index int, key string) error {
	node := nodes[index]
	var sum *redis.IntCmd
	_, err := node.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Set(ctx, key, "10", 0)
		sum = pipe.Incr(ctx, key)
		return nil
	})
	if err := expect("MULTI", sum.Val(), err, 11); err != nil {
		return err
	}
	other := nodes[(index+1)%len(nodes)]
	err = node.Watch(ctx, func(tx *redis.Tx) error {
		if err := other.Set(ctx, key, "20", 0).Err(); err != nil {
			return err
		}
		_, err := tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error { return pipe.Incr(ctx, key).Err() })
		return err
	}, key)
	if !errors.Is(err, redis.TxFailedErr) {
		return fmt.Errorf("a watched key changed, and EXEC gave %v", err)
	}
	return nil
}

// count increments on all nodes concurrently: pipelined, from many connections.
func count(ctx context.Context, nodes []*redis.Client) error {
	const each, workers = 100, 4
	if err := nodes[0].Del(ctx, "go:counter").Err(); err != nil {
		return err
	}
	failures := make(chan error, len(nodes)*workers)
	var all sync.WaitGroup
	for _, node := range nodes {
		for range workers {
			all.Add(1)
			go func() {
				defer all.Done()
				_, err := node.Pipelined(ctx, func(pipe redis.Pipeliner) error {
					for range each {
						pipe.Incr(ctx, "go:counter")
					}
					return nil
				})
				failures <- err
			}()
		}
	}
	all.Wait()
	close(failures)
	for err := range failures {
		if err != nil {
			return err
		}
	}
	total, err := nodes[0].Get(ctx, "go:counter").Int()
	return expect("the counter", total, err, each*workers*len(nodes))
}
