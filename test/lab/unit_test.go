package lab

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestVersionsFile(t *testing.T) {
	if got, want := Lines(), []string{"3006", "3007", "3008"}; !slices.Equal(got, want) {
		t.Fatalf("lines %v, want %v", got, want)
	}
	r, err := findRelease("3006")
	if err != nil || !strings.HasPrefix(r.version(), "3006.") || len(r.requirements) < 2 {
		t.Errorf("3006: %+v, %v", r, err)
	}
	if _, err := findRelease("3005"); err == nil {
		t.Error("3005 was found")
	}
	for _, bad := range []string{"3006", "3006 salt==3007.1", "3006 cherrypy==1", "3006 salt"} {
		if _, err := parseVersions(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func TestMerge(t *testing.T) {
	base := map[string]any{"a": 1, "m": map[string]any{"x": 1, "y": 2}, "l": []any{1, 2}}
	over := map[string]any{"b": 2, "m": map[string]any{"y": 3}, "l": []any{9}}
	want := map[string]any{"a": 1, "b": 2, "m": map[string]any{"x": 1, "y": 3}, "l": []any{9}}
	if got := merge(base, over); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if base["m"].(map[string]any)["y"] != 2 {
		t.Error("merge changed its base")
	}
}

func TestPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, asked := time.Now(), 0
		err := Poll(t.Context(), func() (bool, error) { asked++; return asked == 4, nil })
		if err != nil || time.Since(began) != 3*pollEvery {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := Poll(ctx, func() (bool, error) { return false, nil }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("without an end: %v", err)
		}
		if err := Poll(ctx, func() (bool, error) { return false, os.ErrClosed }); !errors.Is(err, os.ErrClosed) {
			t.Errorf("with an error: %v", err)
		}
	})
}

// Nothing of a lab may lie outside of its folder, /run included.
func TestEveryPathIsInTheLab(t *testing.T) {
	l := &Lab{}
	l.Dir, l.Minions = "/var/tmp/oduflow-lab-x", []string{"minion-1"}
	for _, m := range []MinionDir{l.MinionDir(1), l.TwinDir(1)} {
		conf := l.minionConfig(m)
		for _, key := range []string{"state_dir", "run_dir", "lib_dir", "etc_dir"} {
			if path, _ := conf["oduflow."+key].(string); !strings.HasPrefix(path, m.Root+"/") {
				t.Errorf("oduflow.%s is %q", key, path)
			}
		}
	}
}

func TestMembersFindsWhatForkedAway(t *testing.T) {
	const dir = "/var/tmp/oduflow-lab-x"
	self := os.Getpid()
	all := []Process{
		{PID: 1, Session: 1},
		{PID: 50, Parent: 1, Session: 50, Marked: true},                // a shell with the marker: our ancestor
		{PID: self, Parent: 50, Session: 50, Marked: true},             // ourselves
		{PID: 100, Parent: self, Session: 100, Start: 7, Marked: true}, // a daemon
		{PID: 101, Parent: 100, Session: 100},                          // its child with a clean environment
		{PID: 102, Parent: 1, Session: 100},                            // one that lost its parent, same session
		{PID: 103, Parent: 1, Session: 103, Marked: true},              // one with a session of its own
		{PID: 104, Parent: 1, Session: 104, Exe: dir + "/bin/masterd"},
		{PID: 105, Parent: 1, Session: 105, Exe: "/usr/bin/sleep"},               // a stranger
		{PID: 106, Parent: 1, Session: 106, Exe: dir + "y/bin/masterd"},          // another lab's
		{PID: 200, Parent: 1, Session: 200, Start: 99},                           // took over a number of ours
		{PID: 201, Parent: 200, Session: 200},                                    // and its child
		{PID: 300, Parent: 103, Session: 300, Exe: "/usr/bin/python3.11 (gone)"}, // a descendant
	}
	var got []int
	for _, p := range members(all, dir, []session{{ID: 100, Start: 7}, {ID: 200, Start: 8}}) {
		got = append(got, p.PID)
	}
	if want := []int{100, 101, 102, 103, 104, 300}; !slices.Equal(got, want) {
		t.Errorf("members %v, want %v", got, want)
	}
}

func TestForeignFolderIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "precious")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := removeDir(dir); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Error("a folder without a lab's description was removed:", err)
	}
	if _, err := makeDir(dir); err == nil {
		t.Error("a folder with something in it was taken")
	}
	if _, err := makeDir("/var/tmp/" + strings.Repeat("x", longestDir)); err == nil {
		t.Error("a folder too long for sockets was taken")
	}
	if _, err := Attach(dir, nil); err == nil {
		t.Error("attached to a folder without a lab")
	}
}

// The guard is this test binary again; it must do its work when the pipe closes, and only then.
func TestGuard(t *testing.T) {
	for name, dismissed := range map[string]bool{"owner died": false, "dismissed": true} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "lab")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			l := &Lab{Description: Description{Dir: dir}}
			if err := l.save(); err != nil {
				t.Fatal(err)
			}
			// As a daemon would: a session of its own, marked, and its child with a clean environment.
			daemon := exec.Command("/bin/sh", "-c", "env -i sleep 300; :") // the guard ends it
			daemon.Env = l.environ("daemon", Account{Name: "x"})
			daemon.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			if err := daemon.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan struct{})
			go func() { _ = daemon.Wait(); close(ended) }()
			defer func() { killAll(dir, nil, 5*time.Second); <-ended }()
			g, err := startGuard(dir)
			if err != nil {
				t.Fatal(err)
			}
			if dismissed {
				g.dismiss()
				g.dismiss() // may be repeated
				if len(members(snapshot(dir), dir, nil)) == 0 {
					t.Error("a dismissed guard ended the lab")
				}
				return
			}
			_ = g.pipe.Close() // as the kernel does when the owner dies
			if err := g.cmd.Wait(); err != nil {
				t.Error("the guard failed:", err)
			}
			if left := members(snapshot(dir), dir, nil); len(left) > 0 {
				t.Error("left:", describe(left))
			}
			if _, err := os.Stat(dir); !os.IsNotExist(err) {
				t.Error("the folder is still there:", err)
			}
		})
	}
}

func TestLockFileIsExclusive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := lockFile(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := lockFile(ctx, path); err == nil {
		t.Fatal("locked twice")
	}
	unlock()
	again, err := lockFile(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	again()
}
