package survivor_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/oduflow/oduflow-salt/internal/survivor"
)

// killSleeps ends what carries this test's own request.
func killSleeps(t *testing.T, request string) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid <= 1 {
			continue
		}
		environ, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if strings.Contains(string(environ), survivor.Variable+"="+request+"\x00") {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}
