// The checker accepts exactly the histories that a single machine could have produced.

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

func word(value string) *string { return &value }

func at(nanoseconds int64) *int64 { return &nanoseconds }

func read(found *string, call, end int64) Record {
	return Record{Key: "k", Op: "read", Found: found, Call: call, Return: at(end)}
}

func write(value *string, call, end int64) Record {
	return Record{Key: "k", Op: "write", Value: value, Call: call, Return: at(end)}
}

func swap(value, found *string, call, end int64) Record {
	return Record{Key: "k", Op: "swap", Value: value, Found: found, Call: call, Return: at(end)}
}

func cas(expected, value *string, done bool, call, end int64) Record {
	return Record{Key: "k", Op: "cas", Expected: expected, Value: value, Done: done, Call: call, Return: at(end)}
}

func plus(by, result, call, end int64) Record {
	return Record{Key: "k", Op: "add", By: by, Result: result, Call: call, Return: at(end)}
}

func unknown(record Record) Record {
	record.Return = nil
	return record
}

func TestVerdicts(t *testing.T) {
	a, b := word("a"), word("b")
	histories := []struct {
		name    string
		legal   bool
		records []Record
	}{
		{"nothing", true, nil},
		{"a read sees the write before it", true, []Record{write(a, 1, 2), read(a, 3, 4)}},
		{"a stale read", false, []Record{write(a, 1, 2), write(b, 3, 4), read(a, 5, 6)}},
		{"a lost write", false, []Record{write(a, 1, 2), read(nil, 3, 4)}},
		{"a value from nowhere", false, []Record{write(a, 1, 2), read(b, 3, 4)}},
		{"a concurrent write may be seen or not", true, []Record{write(a, 1, 2), write(b, 3, 9), read(a, 4, 5), read(b, 6, 7)}},
		{"once seen it stays seen", false, []Record{write(a, 1, 2), write(b, 3, 9), read(b, 4, 5), read(a, 6, 7)}},
		{"an unknown write may take effect late", true, []Record{write(a, 1, 2), unknown(write(b, 3, 0)), read(a, 4, 5), read(b, 6, 7)}},
		{"an unknown write may never take effect", true, []Record{write(a, 1, 2), unknown(write(b, 3, 0)), read(a, 4, 5)}},
		{"an unknown write happens once at most", false, []Record{unknown(write(b, 1, 0)), write(a, 2, 3), read(b, 4, 5), write(a, 6, 7), read(b, 8, 9)}},
		{"an unknown write does not act before its call", false, []Record{read(b, 1, 2), unknown(write(b, 3, 0))}},
		{"a deletion is seen", true, []Record{write(a, 1, 2), write(nil, 3, 4), read(nil, 5, 6)}},
		{"a swap gives what was there", true, []Record{write(a, 1, 2), swap(b, a, 3, 4), read(b, 5, 6)}},
		{"a swap that gives something else", false, []Record{write(a, 1, 2), swap(b, nil, 3, 4)}},
		{"a cas that finds what it expects", true, []Record{write(a, 1, 2), cas(a, b, true, 3, 4), read(b, 5, 6)}},
		{"a cas that fails without a reason", false, []Record{write(a, 1, 2), cas(a, b, false, 3, 4)}},
		{"a cas that overwrites what it did not expect", false, []Record{write(a, 1, 2), cas(b, b, true, 3, 4)}},
		{"two cas of one value", false, []Record{write(a, 1, 2), cas(a, b, true, 3, 9), cas(a, word("c"), true, 3, 9)}},
		{"an unknown cas", true, []Record{write(a, 1, 2), unknown(cas(a, b, false, 3, 0)), read(a, 4, 5), read(b, 6, 7)}},
		{"adds count", true, []Record{plus(1, 1, 1, 2), plus(5, 6, 3, 4), read(word("6"), 5, 6)}},
		{"an add that counted twice", false, []Record{plus(1, 1, 1, 2), plus(1, 3, 3, 4)}},
		{"two adds with one result", false, []Record{plus(1, 1, 1, 9), plus(1, 1, 1, 9)}},
		{"an unknown add may explain a gap", true, []Record{plus(1, 1, 1, 2), unknown(plus(1, 0, 3, 0)), plus(1, 3, 4, 5)}},
	}
	for _, history := range histories {
		t.Run(history.name, func(t *testing.T) {
			expected := porcupine.CheckResult(porcupine.Illegal)
			if history.legal {
				expected = porcupine.Ok
			}
			if found := check(history.records, time.Minute); found != expected {
				t.Fatalf("%v instead of %v", found, expected)
			}
		})
	}
}

func TestKeysAreJudgedOnTheirOwn(t *testing.T) {
	other := write(word("b"), 3, 4)
	other.Key = "other"
	records := []Record{write(word("a"), 1, 2), other, read(word("a"), 5, 6)}
	if found := judge(records, time.Minute); len(found.wrong) != 0 || found.keys != 2 {
		t.Fatalf("%+v", found)
	}
	records = append(records, read(word("b"), 7, 8))
	found := judge(records, time.Minute)
	if len(found.wrong) != 1 || found.wrong[0] != "k" {
		t.Fatalf("%+v", found)
	}
}

func TestTheShortestWrongBeginningEndsWithTheStaleRead(t *testing.T) {
	a, b := word("a"), word("b")
	records := []Record{write(a, 1, 2), write(b, 3, 4), read(a, 5, 6), read(b, 7, 8), write(a, 9, 10)}
	found := shortest(records, time.Minute)
	if len(found) != 3 || found[2].Op != "read" {
		t.Fatalf("%v", found)
	}
}

func TestHistoriesAreReadLineByLine(t *testing.T) {
	text := `{"client":1,"key":"k","op":"write","value":"a","call":1,"return":2}
{"client":2,"key":"k","op":"read","found":null,"call":3,"return":null}`
	records, err := readHistory(strings.NewReader(text))
	if err != nil || len(records) != 2 || *records[0].Value != "a" || !records[1].open() {
		t.Fatalf("%v %v", records, err)
	}
	for _, wrong := range []string{
		"x", `{"op":"jump"}`, `{"op":"read","call":2,"return":1}`, `{"op":"read","call":-1}`,
	} {
		if _, err := readHistory(strings.NewReader(wrong)); err == nil {
			t.Fatalf("%s was taken", wrong)
		}
	}
}
