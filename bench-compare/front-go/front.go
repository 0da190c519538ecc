// Package front is a minimal server for a library: it speaks the frames of `quorate bench log`.
//
// A request is a length (32 bits, little-endian) and a command. A reply is a length, a status and,
// if the command was executed, its place in the log. Clients may pipeline commands on a connection;
// replies are in the same order.
package front

import (
	"bufio"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// A longer command ends the connection.
	commandBytesMax = 1 << 20
	// Unanswered commands of a connection, above which it is not read.
	openMax = 4096

	done    = 0
	unknown = 5
)

// Flags common to all programs under comparison.
type Flags struct {
	// Node is this node's number, from 1.
	Node int
	// Peers are the addresses at which the nodes reach each other.
	Peers []string
	// Client is the address for clients.
	Client string
	// Folder is initially empty.
	Folder string
	// Durable acknowledges a command only once it is on the disks of a majority.
	Durable bool
}

// ParseFlags parses the command line and exits on errors.
func ParseFlags() Flags {
	node := flag.Int("node", 0, "which of the peers this is, from 1")
	peers := flag.String("peers", "", "addresses of all nodes, with commas")
	client := flag.String("client", "", "address for clients")
	folder := flag.String("folder", "", "an empty folder")
	class := flag.String("class", "durable", "durable or volatile")
	flag.Parse()
	all := strings.Split(*peers, ",")
	if *node < 1 || *node > len(all) || *client == "" || *folder == "" || (*class != "durable" && *class != "volatile") {
		flag.Usage()
		os.Exit(2)
	}
	return Flags{Node: *node, Peers: all, Client: *client, Folder: *folder, Durable: *class == "durable"}
}

// Future is a command in flight.
type Future interface {
	// Wait returns the command's place in the log once it is committed and applied here.
	Wait() (uint64, error)
}

// Submit passes a command to the library, which owns its bytes afterwards. It may block.
type Submit func(command []byte) Future

// Serve accepts clients until the process ends.
func Serve(address string, submit Submit) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				log.Fatal(err)
			}
			go serve(connection, submit)
		}
	}()
	return nil
}

func serve(connection net.Conn, submit Submit) {
	defer connection.Close()
	under := make(chan Future, openMax)
	replies := newOutput()
	go func() {
		for future := range under {
			index, err := future.Wait()
			replies.add(index, err)
		}
		replies.end()
	}()
	go replies.writeTo(connection)
	defer close(under)
	input := bufio.NewReaderSize(connection, 64<<10)
	var length [4]byte
	for {
		if _, err := io.ReadFull(input, length[:]); err != nil {
			return
		}
		size := binary.LittleEndian.Uint32(length[:])
		if size > commandBytesMax {
			return
		}
		command := make([]byte, size)
		if _, err := io.ReadFull(input, command); err != nil {
			return
		}
		under <- submit(command)
	}
}

// output collects replies while earlier ones are being written.
type output struct {
	lock  sync.Mutex
	news  *sync.Cond
	bytes []byte
	ended bool
}

func newOutput() *output {
	o := &output{}
	o.news = sync.NewCond(&o.lock)
	return o
}

func (o *output) add(index uint64, err error) {
	o.lock.Lock()
	if err == nil {
		o.bytes = binary.LittleEndian.AppendUint32(o.bytes, 9)
		o.bytes = append(o.bytes, done)
		o.bytes = binary.LittleEndian.AppendUint64(o.bytes, index)
	} else {
		o.bytes = binary.LittleEndian.AppendUint32(o.bytes, 1)
		o.bytes = append(o.bytes, unknown)
	}
	o.lock.Unlock()
	o.news.Signal()
}

func (o *output) end() {
	o.lock.Lock()
	o.ended = true
	o.lock.Unlock()
	o.news.Signal()
}

func (o *output) writeTo(connection net.Conn) {
	var spare []byte
	for {
		o.lock.Lock()
		for len(o.bytes) == 0 && !o.ended {
			o.news.Wait()
		}
		if len(o.bytes) == 0 {
			o.lock.Unlock()
			return
		}
		full := o.bytes
		o.bytes = spare[:0]
		o.lock.Unlock()
		if _, err := connection.Write(full); err != nil {
			// The reader sees it as well and stops; remaining futures are awaited and dropped.
			connection.Close()
			return
		}
		spare = full
	}
}

// Applied counts applied commands; its digest depends on their order.
type Applied struct {
	lock   sync.Mutex
	count  uint64
	digest uint64
}

// Apply applies the next command.
func (a *Applied) Apply(command []byte) {
	a.lock.Lock()
	a.add(command)
	a.lock.Unlock()
}

// ApplyAll applies the next commands.
func (a *Applied) ApplyAll(each func(add func(command []byte))) {
	a.lock.Lock()
	each(a.add)
	a.lock.Unlock()
}

func (a *Applied) add(command []byte) {
	a.count++
	a.digest *= 31
	if len(command) >= 8 {
		a.digest += binary.LittleEndian.Uint64(command)
	}
}

// State returns the contents of a snapshot.
func (a *Applied) State() (count, digest uint64) {
	a.lock.Lock()
	defer a.lock.Unlock()
	return a.count, a.digest
}

// Restore loads the contents of a snapshot.
func (a *Applied) Restore(count, digest uint64) {
	a.lock.Lock()
	defer a.lock.Unlock()
	a.count, a.digest = count, digest
}

// Run reports the leader (0 if there is none) until SIGTERM, and then what was applied.
func Run(applied *Applied, leader func() int) {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	tick := time.NewTicker(50 * time.Millisecond)
	known := 0
	for {
		select {
		case <-stop:
			count, digest := applied.State()
			fmt.Printf("applied %d %x\n", count, digest)
			os.Exit(0)
		case <-tick.C:
			if now := leader(); now != known {
				known = now
				fmt.Printf("leader %d\n", now)
			}
		}
	}
}
