// History: requests and replies of clients, one JSON object a line.

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
)

// Longest line accepted.
const lineBytesMax = 1 << 20

// Record is one operation of one client on one key. An absent key is null.
type Record struct {
	Client int    `json:"client"`
	Key    string `json:"key"`
	// "read", "write", "swap", "cas" or "add".
	Op string `json:"op"`
	// Value found by a read or a swap.
	Found *string `json:"found"`
	// Value stored by a write, a swap or a cas; null deletes.
	Value *string `json:"value"`
	// Value that a cas expects.
	Expected *string `json:"expected"`
	// True if a cas stored its value.
	Done bool `json:"done"`
	// Amount that an add adds, and its result.
	By     int64 `json:"by"`
	Result int64 `json:"result"`
	// Nanoseconds since the start of the run, from one monotonic clock. Without a return the outcome
	// is unknown: the operation may take effect at any time after its call, or never.
	Call   int64  `json:"call"`
	Return *int64 `json:"return"`
}

// open returns true if the outcome is unknown.
func (r Record) open() bool { return r.Return == nil }

func (r Record) String() string {
	ends := "(no reply)"
	if !r.open() {
		ends = fmt.Sprintf("%.6f", float64(*r.Return)/1e9)
	}
	return fmt.Sprintf("%12.6f %12s  client %-3d %s", float64(r.Call)/1e9, ends, r.Client, r.what())
}

func (r Record) what() string {
	outcome := func(known string) string {
		if r.open() {
			return "?"
		}
		return known
	}
	switch r.Op {
	case "read":
		return fmt.Sprintf("read -> %s", show(r.Found))
	case "write":
		return fmt.Sprintf("write %s", show(r.Value))
	case "swap":
		return fmt.Sprintf("swap %s -> %s", show(r.Value), outcome(show(r.Found)))
	case "cas":
		return fmt.Sprintf("cas %s to %s -> %s", show(r.Expected), show(r.Value), outcome(fmt.Sprint(r.Done)))
	default:
		return fmt.Sprintf("add %d -> %s", r.By, outcome(fmt.Sprint(r.Result)))
	}
}

func show(value *string) string {
	if value == nil {
		return "nothing"
	}
	return *value
}

// readHistory reads all records. The error for a malformed record names its line.
func readHistory(from io.Reader) ([]Record, error) {
	var records []Record
	lines := bufio.NewScanner(from)
	lines.Buffer(make([]byte, 0, 64<<10), lineBytesMax)
	for number := 1; lines.Scan(); number++ {
		var record Record
		if err := json.Unmarshal(lines.Bytes(), &record); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		if err := record.check(); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		records = append(records, record)
	}
	return records, lines.Err()
}

func (r Record) check() error {
	switch r.Op {
	case "read", "write", "swap", "cas", "add":
	default:
		return fmt.Errorf("unknown operation %q", r.Op)
	}
	if r.Call < 0 || (r.Return != nil && *r.Return < r.Call) {
		return fmt.Errorf("it returns before it is called")
	}
	return nil
}
