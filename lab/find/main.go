// Command find tells which FreeSWITCH the tests will use, and fails where there is none.
package main

import (
	"fmt"
	"os"

	"tandem/lab"
)

func main() {
	path, ok := lab.Find()
	if !ok {
		_, _ = fmt.Fprintln(os.Stderr, "no FreeSWITCH here: set FREESWITCH_BIN to the path of a freeswitch 1.10 binary")
		os.Exit(1)
	}
	_, _ = fmt.Fprintln(os.Stdout, "testing against", path)
}
