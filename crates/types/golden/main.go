// Prints what Go's time.ParseDuration makes of each line of inputs.txt (a quoted Go string a line):
// the input, a tab, and the nanoseconds or "refused". Run it here: go run main.go < inputs.txt > go.tsv
package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"time"
)

func main() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		input, err := strconv.Unquote(lines.Text())
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", lines.Text(), err)
			os.Exit(1)
		}
		duration, err := time.ParseDuration(input)
		if err != nil {
			fmt.Printf("%s\trefused\n", lines.Text())
			continue
		}
		fmt.Printf("%s\t%d\t%s\n", lines.Text(), int64(duration), duration)
	}
}
