package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// Asked is the JSON object that a program is started with.
type Asked struct {
	Bootstrap, Topic, Level, Group, Variant string
	IdleS                                   float64 `json:"idle_s"`
}

// Line is a record as programs print it: encoding/json writes bytes as Base64 and nil as null.
type Line struct {
	P int32    `json:"p"`
	O int64    `json:"o"`
	K []byte   `json:"k"`
	V []byte   `json:"v"`
	H [][2]any `json:"h"`
	T int64    `json:"t"`
}

// Given is a record to write. T nil: no time was given.
type Given struct {
	K, V []byte
	T    *int64
}

func main() {
	var asked Asked
	check(json.Unmarshal([]byte(os.Args[2]), &asked))
	actions[os.Args[1]](asked)
}

func (asked Asked) idle() time.Duration {
	return time.Duration(asked.IdleS * float64(time.Second))
}

// drain shows what comes until nothing came for so long; the first record may take longer.
func drain(lines <-chan Line, first, idle time.Duration) {
	out := json.NewEncoder(os.Stdout)
	patience := time.NewTimer(first)
	for {
		select {
		case line := <-lines:
			check(out.Encode(line))
			patience.Reset(idle)
		case <-patience.C:
			return
		}
	}
}

func given() (all []Given) {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var one Given
		check(json.Unmarshal(lines.Bytes(), &one))
		all = append(all, one)
	}
	return all
}

func say(name string, what any) {
	check(json.NewEncoder(os.Stdout).Encode(map[string]any{name: what}))
}

// check ends the program with the error as its last line.
func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
