package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"
)

// caching tests rueidis, which caches reads by default. A cached value is served without a request,
// and is gone soon after a write on another node.
func caching(ctx context.Context, ports []string) error {
	for index, port := range ports {
		cached, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{"127.0.0.1:" + port}})
		if err != nil {
			return err
		}
		defer cached.Close()
		other := "127.0.0.1:" + ports[(index+1)%len(ports)]
		writer, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{other}, DisableCache: true})
		if err != nil {
			return err
		}
		defer writer.Close()
		key := "go:cached:" + port
		for version := range 50 {
			value := strconv.Itoa(version)
			if err := writer.Do(ctx, writer.B().Set().Key(key).Value(value).Build()).Error(); err != nil {
				return err
			}
			if err := cachedAs(ctx, cached, key, value); err != nil {
				return fmt.Errorf("port %s: %w", port, err)
			}
		}
	}
	return nil
}

func cachedAs(ctx context.Context, client rueidis.Client, key, value string) error {
	read := func() rueidis.RedisResult {
		return client.DoCache(ctx, client.B().Get().Key(key).Cache(), time.Minute)
	}
	deadline := time.Now().Add(patience)
	for {
		found, err := read().ToString()
		if err != nil {
			return err
		}
		if found == value {
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s is still cached as %s instead of %s", key, found, value)
		}
	}
	// The notice has come, so the cache stays.
	read()
	if !read().IsCacheHit() {
		return errors.New("the cache is not used")
	}
	return nil
}
