// Package survivor finds processes that a request left running: every process
// that was executed below its Salt job carries the request in its environment.
package survivor

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"

	"github.com/oduflow/oduflow-salt/internal/problem"
)

// Variable is the name of the environment variable that a job sets for what it
// executes. Executors and plugins never carry it.
const Variable = "ODUFLOW_REQUEST"

// Count says how many processes carry a request. procfs is "/proc" but in
// tests. A process that forks while it is looked at can be missed, so nothing
// found is looked for a second time.
func Count(procfs, request string) (int, error) {
	want := []byte(Variable + "=" + request)
	for range 2 {
		n, err := scan(procfs, want)
		if err != nil || n > 0 {
			return n, err
		}
	}
	return 0, nil
}

func scan(procfs string, want []byte) (int, error) {
	entries, err := os.ReadDir(procfs)
	if err != nil {
		return 0, problem.Wrap(problem.MinionUnsupported, err, "the process list can't be read")
	}
	n := 0
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		// Unreadable ones are gone, or somebody else's where we aren't root.
		environ, err := os.ReadFile(filepath.Join(procfs, e.Name(), "environ"))
		if err != nil {
			continue
		}
		for _, v := range bytes.Split(environ, []byte{0}) {
			if bytes.Equal(v, want) {
				n++
				break
			}
		}
	}
	return n, nil
}
