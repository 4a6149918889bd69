//go:build salt

package e2e

import (
	"bytes"
	"context"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oduflow/oduflow-salt/test/oduflow"
)

// A7, A13: a word hidden in the source is nowhere but in the receipt database
// and on that one minion. It runs on the minion whose configuration has
// state_events on, and the word is also in what the state prints.
func TestAHiddenWordStaysHidden(t *testing.T) {
	const word = "Tr0mbonist-7731"
	bus := record(t)
	seen := watchProcesses(t, word)
	client := &oduflow.Client{URL: "http://masterd", HTTP: salt.SocketClient()}
	s := request(t, peculiar, "hidden "+word+":\n  test.show_notification:\n    - text: "+word+"\nfails "+word+":\n  test.configurable_test_state:\n    - result: false\n    - comment: "+word+"\n")
	a := apply(t, s)
	want(t, a, "failed", "state_failed")
	again := s
	again.Request, again.Previous = oduflow.NewUUID(), s.Request
	if _, err := client.CustomStart(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	await(t, again.Request)
	_, err := odoo.CustomStart(t.Context(), oduflow.Start{ // refused, with the word in it
		Request: oduflow.NewUUID(), Target: name(peculiar), Instance: instance[peculiar], Revision: 1, Source: "a: " + word + "\n",
	})
	if r := refusal(t, err); strings.Contains(r.Message+r.Hint, word) {
		t.Errorf("the refusal quotes the source: %v", r)
	}
	status, text := post(t, "custom_status", "application/json", "Bearer "+token, strings.NewReader(`{"request": "`+s.Request+`"}`))
	if status != http.StatusOK || strings.Contains(text, word) {
		t.Errorf("status answer: %d %s", status, text)
	}
	if places := seen(); len(places) > 0 {
		t.Errorf("the word was in the command line or environment of %v", places)
	}
	if events := bus(); bytes.Contains(events, []byte(word)) {
		t.Error("the word was on the master's event bus")
	} else if !bytes.Contains(events, []byte("oduflow.start")) {
		t.Error("the recorder heard no start: it proves nothing")
	}
	own := salt.MinionDir(peculiar).Root
	private := salt.DatabasePath()
	found := 0
	err = filepath.WalkDir(salt.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil // went away meanwhile
		}
		raw, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(raw, []byte(word)) {
			return nil // went away meanwhile
		}
		if strings.HasPrefix(path, private) {
			found++
			return nil
		}
		if strings.HasPrefix(path, own+"/") && !strings.HasPrefix(path, salt.MinionDir(peculiar).State) {
			return nil // "on that one minion": Salt's own cache of what it ran
		}
		if path == salt.LogPath(name(peculiar)) {
			return nil // that one minion's own log; states may write there
		}
		t.Errorf("the word is in %s", path)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found == 0 {
		t.Error("the word isn't in the receipt database either: the search proves nothing")
	}
}

// record listens on the master's event bus, as any local subscriber could, and
// gives all bytes when asked.
func record(t *testing.T) func() []byte {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "unix", filepath.Join(salt.SockDir(), "master_event_pub.ipc"))
	if err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	var done sync.WaitGroup
	done.Go(func() { _, _ = buf.ReadFrom(conn) })
	return func() []byte {
		_ = conn.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
		done.Wait()
		_ = conn.Close()
		return buf.Bytes()
	}
}

// watchProcesses looks at every process's arguments and environment until asked.
func watchProcesses(t *testing.T, word string) func() []string {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	found := map[string]bool{}
	var done sync.WaitGroup
	done.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			for _, name := range []string{"cmdline", "environ"} {
				files, _ := filepath.Glob("/proc/[0-9]*/" + name)
				for _, f := range files {
					if raw, err := os.ReadFile(f); err == nil && bytes.Contains(raw, []byte(word)) {
						found[f] = true
					}
				}
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	return func() (places []string) {
		stop()
		done.Wait()
		for f := range found {
			places = append(places, f)
		}
		return places
	}
}

// salt-facts "Logging in to publish": nothing that is left behind, or passes on
// the bus, can make a second publish.
func TestTheLoginLeavesNoTrace(t *testing.T) {
	if !salt.Root {
		t.Skip("needs root: without it the login key is the caller's own")
	}
	bus := record(t)
	want(t, apply(t, request(t, plain, ordered)), "succeeded", "")
	refusedPublish(t)
	key, err := os.ReadFile(salt.KeyFile())
	if err != nil {
		t.Fatal(err)
	}
	key = bytes.TrimSpace(key)
	if events := bus(); bytes.Contains(events, key) {
		t.Error("the login key was on the bus")
	}
	err = filepath.WalkDir(salt.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || path == salt.KeyFile() {
			return nil // went away meanwhile
		}
		if raw, err := os.ReadFile(path); err == nil && bytes.Contains(raw, key) {
			t.Errorf("the login key is in %s", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(salt.KeyFile()); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key file: %v %v", info, err)
	}
}

// refusedPublish makes the master refuse masterd's publish once: the key is
// replaced by a wrong one for a moment.
func refusedPublish(t *testing.T) {
	t.Helper()
	key, err := os.ReadFile(salt.KeyFile())
	if err != nil {
		t.Fatal(err)
	}
	replace(t, salt.KeyFile(), bytes.Repeat([]byte("x"), len(key)))
	s := request(t, plain, ordered)
	begin(t, s)
	a := await(t, s.Request)
	replace(t, salt.KeyFile(), key)
	if a.Status != "failed" || a.Preflight.Passed != 0 {
		t.Errorf("with a wrong key: %s %s", a.Status, a.Code)
	}
}
