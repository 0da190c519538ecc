// Load for etcd: puts over its gRPC interface, in a closed or an open loop.
//
// It uses only the generated client, which costs less than etcd's own client with its retries and
// balancing. In an open loop, latency counts from the scheduled time of a put. Results are in the
// format of bench-compare/README.md.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

const (
	keys = 100_000
	// A put sent this long after its scheduled time is late.
	late = time.Millisecond
	// Maximum outstanding puts in an open loop; further ones wait, and are late.
	underWayMax = 2048
	// Maximum scheduled puts of an open loop that wait to be sent.
	queueMax = 1 << 20
	patience = 10 * time.Second
)

type plan struct {
	connections, outstanding, rate, valueBytes int
	warmup, duration                           time.Duration
}

func main() {
	var plan plan
	connect := flag.String("connect", "", "client addresses, with commas; the leader among them is asked")
	flag.IntVar(&plan.connections, "connections", 1, "connections")
	flag.IntVar(&plan.outstanding, "outstanding", 0, "puts under way, in a closed loop")
	flag.IntVar(&plan.rate, "rate", 0, "puts per second, in an open loop")
	flag.IntVar(&plan.valueBytes, "value-size", 64, "bytes of a value")
	flag.DurationVar(&plan.warmup, "warmup", time.Second, "thrown away")
	flag.DurationVar(&plan.duration, "duration", 5*time.Second, "measured")
	flag.Parse()
	if plan.connections < 1 || (plan.outstanding < 1) == (plan.rate < 1) {
		log.Fatal("one of --outstanding and --rate is needed, and --connections")
	}
	endpoints := strings.Split(*connect, ",")
	// A goroutine blocked in a system call keeps its processor until the runtime notices, which takes
	// milliseconds, so use more processors than CPUs.
	runtime.GOMAXPROCS(runtime.NumCPU() + 6)
	// A small heap would be collected many times a second, delaying puts.
	debug.SetGCPercent(1600)
	leader, before := status(endpoints)
	result := run(plan, leader)
	result.tell(plan)
	for place, revision := range revisions(endpoints) {
		fmt.Printf("applied %d 0\n", revision-before[place])
	}
}

func dial(address string) *grpc.ClientConn {
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	return connection
}

// status returns the leader and each node's revision.
func status(endpoints []string) (string, []int64) {
	leader := ""
	for _, address := range endpoints {
		connection := dial(address)
		reply, err := pb.NewMaintenanceClient(connection).Status(context.Background(), &pb.StatusRequest{})
		if err != nil {
			log.Fatal(err)
		}
		if reply.Leader == reply.Header.MemberId {
			leader = address
		}
		connection.Close()
	}
	if leader == "" {
		log.Fatal("nobody leads")
	}
	return leader, revisions(endpoints)
}

// revisions returns the revision applied by each node. It reads locally, without asking the leader,
// after a pause in which nodes can apply what is committed.
func revisions(endpoints []string) []int64 {
	time.Sleep(300 * time.Millisecond)
	var all []int64
	for _, address := range endpoints {
		connection := dial(address)
		reply, err := pb.NewKVClient(connection).Range(context.Background(), &pb.RangeRequest{Key: []byte("x"), Serializable: true})
		if err != nil {
			log.Fatal(err)
		}
		all = append(all, reply.Header.Revision)
		connection.Close()
	}
	return all
}

type result struct {
	lock         sync.Mutex
	latencies    *hdrhistogram.Histogram
	firstError   string
	completed    atomic.Int64
	acknowledged atomic.Int64
	errors       atomic.Int64
	sent, late   atomic.Int64
}

// part holds one goroutine's latencies.
type part struct{ *hdrhistogram.Histogram }

func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, int64(time.Minute), 3)
}

func run(plan plan, leader string) *result {
	result := &result{latencies: newHistogram()}
	clients := make([]pb.KVClient, plan.connections)
	for i := range clients {
		connection := dial(leader)
		defer connection.Close()
		clients[i] = pb.NewKVClient(connection)
		// Connect before the measurement begins.
		if _, err := clients[i].Range(context.Background(), &pb.RangeRequest{Key: []byte("x")}); err != nil {
			log.Fatal(err)
		}
	}
	start := time.Now()
	go announce(start, plan)
	var workers sync.WaitGroup
	var number atomic.Uint64
	value := make([]byte, plan.valueBytes)
	for i := range value {
		value[i] = 'x'
	}
	work := func(place int, next func() (time.Time, bool)) {
		defer workers.Done()
		mine := part{newHistogram()}
		client := clients[place%len(clients)]
		for {
			begins, more := next()
			if !more {
				break
			}
			result.put(plan, client, start, begins, number.Add(1), value, mine)
		}
		result.lock.Lock()
		result.latencies.Merge(mine.Histogram)
		result.lock.Unlock()
	}
	ends := start.Add(plan.warmup + plan.duration)
	if plan.rate == 0 {
		for i := range plan.outstanding {
			workers.Add(1)
			go work(i, func() (time.Time, bool) {
				now := time.Now()
				return now, now.Before(ends)
			})
		}
	} else {
		due := make(chan time.Time, queueMax)
		for i := range underWayMax {
			workers.Add(1)
			go work(i, func() (time.Time, bool) {
				begins, more := <-due
				return begins, more
			})
		}
		schedule(plan, start, ends, due)
	}
	workers.Wait()
	return result
}

// schedule sends each put's scheduled time when it is due.
func schedule(plan plan, start, ends time.Time, due chan<- time.Time) {
	defer close(due)
	// Go's own timers are only precise to a millisecond.
	runtime.LockOSThread()
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	for n := int64(0); ; n++ {
		intended := start.Add(time.Duration(n * int64(time.Second) / int64(plan.rate)))
		if !intended.Before(ends) {
			return
		}
		if wait := time.Until(intended); wait > 0 {
			pause := unix.NsecToTimespec(int64(wait))
			_ = unix.Nanosleep(&pause, nil)
		}
		due <- intended
	}
}

func announce(start time.Time, plan plan) {
	time.Sleep(time.Until(start.Add(plan.warmup)))
	fmt.Println("measuring")
	time.Sleep(time.Until(start.Add(plan.warmup + plan.duration)))
	fmt.Println("measured")
}

func (r *result) put(plan plan, client pb.KVClient, start, begins time.Time, number uint64, value []byte, mine part) {
	from := start.Add(plan.warmup)
	to := from.Add(plan.duration)
	measured := func(at time.Time) bool { return !at.Before(from) && at.Before(to) }
	if measured(begins) {
		r.sent.Add(1)
		if time.Since(begins) > late {
			r.late.Add(1)
		}
	}
	context, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	key := fmt.Appendf(nil, "key:%012d", scatter(number)%keys)
	_, err := client.Put(context, &pb.PutRequest{Key: key, Value: value})
	now := time.Now()
	if err != nil {
		r.errors.Add(1)
		r.lock.Lock()
		if r.firstError == "" {
			r.firstError = err.Error()
		}
		r.lock.Unlock()
		return
	}
	r.acknowledged.Add(1)
	if measured(now) {
		r.completed.Add(1)
	}
	if measured(begins) {
		_ = mine.RecordValue(min(int64(now.Sub(begins)), int64(time.Minute)))
	}
}

// scatter returns a pseudo-random number that depends only on n (splitmix64).
func scatter(n uint64) uint64 {
	z := (n + 1) * 0x9e3779b97f4a7c15
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return z ^ (z >> 31)
}

func (r *result) tell(plan plan) {
	us := func(quantile float64) float64 { return float64(r.latencies.ValueAtQuantile(quantile)) / 1000 }
	lateShare := float64(r.late.Load()) / float64(max(r.sent.Load(), 1))
	fmt.Printf("result achieved_per_s=%f completed=%d acknowledged=%d p50_us=%f p95_us=%f p99_us=%f p999_us=%f max_us=%f errors=%d lost=0 late_share=%f\n",
		float64(r.completed.Load())/plan.duration.Seconds(), r.completed.Load(), r.acknowledged.Load(),
		us(50), us(95), us(99), us(99.9), float64(r.latencies.Max())/1000, r.errors.Load(), lateShare)
	if r.firstError != "" {
		fmt.Printf("error %s\n", strings.ReplaceAll(r.firstError, "\n", " "))
	}
}
