// Model: a key is a register with read, write, swap, compare-and-swap and add.

package main

import (
	"math"
	"strconv"

	"github.com/anishathalye/porcupine"
)

// state of one key.
type state struct {
	present bool
	value   string
}

func stateOf(value *string) state {
	if value == nil {
		return state{}
	}
	return state{present: true, value: *value}
}

// register is the sequential behaviour of one key. An operation without a return accepts every
// outcome; taking effect at the very end is the same as never.
var register = porcupine.Model{
	Init:  func() any { return state{} },
	Step:  func(before, input, _ any) (bool, any) { return step(before.(state), input.(Record)) },
	Equal: func(a, b any) bool { return a == b },
	DescribeOperation: func(input, _ any) string {
		return input.(Record).what()
	},
	DescribeState: func(s any) string {
		if s := s.(state); s.present {
			return s.value
		}
		return "nothing"
	},
}

func step(before state, r Record) (bool, state) {
	switch r.Op {
	case "read":
		return r.open() || before == stateOf(r.Found), before
	case "write":
		return true, stateOf(r.Value)
	case "swap":
		return r.open() || before == stateOf(r.Found), stateOf(r.Value)
	case "cas":
		if before == stateOf(r.Expected) {
			return r.open() || r.Done, stateOf(r.Value)
		}
		return r.open() || !r.Done, before
	case "add":
		return add(before, r)
	}
	return false, before
}

func add(before state, r Record) (bool, state) {
	number := int64(0)
	if before.present {
		parsed, err := strconv.ParseInt(before.value, 10, 64)
		if err != nil {
			// Only a known outcome can contradict the state.
			return r.open(), before
		}
		number = parsed
	}
	sum := number + r.By
	after := state{present: true, value: strconv.FormatInt(sum, 10)}
	return r.open() || r.Result == sum, after
}

// operations converts records for porcupine. A read without a reply says nothing and is dropped.
func operations(records []Record) []porcupine.Operation {
	var all []porcupine.Operation
	for _, record := range records {
		if record.Op == "read" && record.open() {
			continue
		}
		end := int64(math.MaxInt64)
		if !record.open() {
			end = *record.Return
		}
		all = append(all, porcupine.Operation{
			ClientId: record.Client, Input: record, Call: record.Call, Output: nil, Return: end,
		})
	}
	return all
}
