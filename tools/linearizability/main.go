// Command linearizability checks a history of clients: is there an order of all operations, each
// between its call and its return, in which a single machine would have given the same replies?
//
//	linearizability [-limit 60s] [-html FILE] HISTORY
//
// Exit codes: 0 linearizable · 1 the history cannot be read · 2 bad usage · 3 timed out · 4 not
// linearizable.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

const (
	exitFailed    = 1
	exitUsage     = 2
	exitUndecided = 3
	exitViolation = 4
	// Operations of a non-linearizable history to print.
	shownMax = 30
)

func main() {
	limit := flag.Duration("limit", time.Minute, "longest time for one key")
	html := flag.String("html", "", "draw the first wrong key into this file")
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(exitUsage)
	}
	os.Exit(run(flag.Arg(0), *limit, *html))
}

func run(path string, limit time.Duration, html string) int {
	file, err := os.Open(path)
	if err != nil {
		fmt.Println(err)
		return exitFailed
	}
	defer file.Close()
	records, err := readHistory(file)
	if err != nil {
		fmt.Printf("%s: %v\n", path, err)
		return exitFailed
	}
	found := judge(records, limit)
	fmt.Printf("porcupine: %d operations on %d keys, %d without a known outcome: %s\n",
		found.operations, found.keys, found.open, found.word())
	if len(found.wrong) > 0 {
		explain(found.wrong[0], byKey(records)[found.wrong[0]], limit, html)
		return exitViolation
	}
	if len(found.undecided) > 0 {
		return exitUndecided
	}
	return 0
}

func (v verdict) word() string {
	switch {
	case len(v.wrong) > 0:
		return fmt.Sprintf("NOT linearizable: %v", v.wrong)
	case len(v.undecided) > 0:
		return fmt.Sprintf("undecided, it takes too long: %v", v.undecided)
	default:
		return "linearizable"
	}
}

// explain prints the end of the shortest prefix that is not linearizable.
func explain(key string, records []Record, limit time.Duration, html string) {
	begin := shortest(records, limit)
	fmt.Printf("key %s: no order explains its first %d operations; the last of them (seconds):\n", key, len(begin))
	for _, record := range begin[max(0, len(begin)-shownMax):] {
		fmt.Println(record)
	}
	if html == "" {
		return
	}
	_, info := porcupine.CheckOperationsVerbose(register, operations(begin), limit)
	if err := porcupine.VisualizePath(register, info, html); err != nil {
		fmt.Printf("%s: %v\n", html, err)
		return
	}
	fmt.Printf("drawn in %s\n", html)
}
