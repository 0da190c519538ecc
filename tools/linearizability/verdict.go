// Verdict: every key is judged on its own, since a history is linearizable if each key's is.

package main

import (
	"runtime"
	"sort"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// verdict on a whole history.
type verdict struct {
	keys, operations, open int
	// Keys whose history is not linearizable.
	wrong []string
	// Keys whose check timed out.
	undecided []string
}

func byKey(records []Record) map[string][]Record {
	keys := map[string][]Record{}
	for _, record := range records {
		keys[record.Key] = append(keys[record.Key], record)
	}
	return keys
}

// judge checks all keys, using all processors, each for at most limit.
func judge(records []Record, limit time.Duration) verdict {
	keys := byKey(records)
	result := verdict{keys: len(keys), operations: len(records)}
	for _, record := range records {
		if record.open() {
			result.open++
		}
	}
	names := make(chan string)
	var lock sync.Mutex
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for name := range names {
				found := check(keys[name], limit)
				lock.Lock()
				switch found {
				case porcupine.Illegal:
					result.wrong = append(result.wrong, name)
				case porcupine.Unknown:
					result.undecided = append(result.undecided, name)
				}
				lock.Unlock()
			}
		}()
	}
	for name := range keys {
		names <- name
	}
	close(names)
	workers.Wait()
	sort.Strings(result.wrong)
	sort.Strings(result.undecided)
	return result
}

func check(records []Record, limit time.Duration) porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(register, operations(records), limit)
}

// shortest returns the shortest prefix of one key's history that is not linearizable. Operations
// that had not returned by then are open in it.
func shortest(records []Record, limit time.Duration) []Record {
	var ends []int64
	for _, record := range records {
		if !record.open() {
			ends = append(ends, *record.Return)
		}
	}
	sort.Slice(ends, func(a, b int) bool { return ends[a] < ends[b] })
	first := sort.Search(len(ends), func(at int) bool {
		return check(until(records, ends[at]), limit) == porcupine.Illegal
	})
	if first == len(ends) {
		return records
	}
	return until(records, ends[first])
}

func until(records []Record, end int64) []Record {
	var begun []Record
	for _, record := range records {
		if record.Call > end {
			continue
		}
		if !record.open() && *record.Return > end {
			record.Return = nil
		}
		begun = append(begun, record)
	}
	sort.Slice(begun, func(a, b int) bool { return begun[a].Call < begun[b].Call })
	return begun
}
