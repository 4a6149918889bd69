package survivor_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/oduflow/oduflow-salt/internal/survivor"
)

func TestCount(t *testing.T) {
	proc := t.TempDir()
	add := func(pid, environ string) {
		if err := os.MkdirAll(filepath.Join(proc, pid), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(proc, pid, "environ"), []byte(environ), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	add("1", "PATH=/bin\x00")
	add("20", "PATH=/bin\x00ODUFLOW_REQUEST=a\x00")
	add("21", "ODUFLOW_REQUEST=ab\x00") // another request with the same beginning
	add("22", "X=ODUFLOW_REQUEST=a\x00")
	add("23", "ODUFLOW_REQUEST=a") // no end
	add("self", "ODUFLOW_REQUEST=a\x00")
	if err := os.Mkdir(filepath.Join(proc, "24"), 0o755); err != nil { // gone
		t.Fatal(err)
	}
	for request, want := range map[string]int{"a": 2, "ab": 1, "b": 0} {
		if n, err := survivor.Count(proc, request); n != want || err != nil {
			t.Errorf("%s: %d, %v", request, n, err)
		}
	}
	if _, err := survivor.Count(filepath.Join(proc, "nosuch"), "a"); err == nil {
		t.Error("no process list, and no error")
	}
}

// On the real process list: found while it lives, grandchildren too.
func TestRealProcess(t *testing.T) {
	request := "test-" + t.Name()
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", "sleep 300 & echo ready; wait")
	cmd.Env = []string{survivor.Variable + "=" + request, "PATH=/bin:/usr/bin"}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = out.Read(make([]byte, 16))
	if n, err := survivor.Count("/proc", request); n < 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	_ = cmd.Process.Kill()
	_, _ = cmd.Process.Wait()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	if n, _ := survivor.Count("/proc", request); n != 1 {
		t.Errorf("%d survivors of a killed shell, expected its sleep", n)
	}
	killSleeps(t, request)
	for range 500 {
		if n, _ := survivor.Count("/proc", request); n == 0 {
			return
		}
		<-tick.C
	}
	t.Error("they don't end")
}
