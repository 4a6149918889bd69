//go:build salt

package e2e

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Issue 5: a database that is missing, damaged, another program's, or of another
// version isn't opened, and masterd says what to do; init never makes a new one
// beside it. With the right one back, all is as before.
func TestDatabasesThatAreRefused(t *testing.T) {
	s := request(t, plain, "kept:\n  test.nop: []\n")
	kept := apply(t, s)
	want(t, kept, "succeeded", "")
	if err := salt.StopMasterd(t.Context()); err != nil {
		t.Fatal(err)
	}
	path := salt.DatabasePath()
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	header := func(offset int, value uint32) func() {
		return func() {
			other := bytes.Clone(good)
			binary.BigEndian.PutUint32(other[offset:], value)
			replace(t, path, other)
		}
	}
	for _, c := range []struct {
		name  string
		wreck func()
		code  string
		do    []string
	}{
		{"cut off", func() { replace(t, path, good[:len(good)/2]) }, "database_damaged", []string{"masterd restore"}},
		{"overwritten", func() {
			other := bytes.Clone(good)
			copy(other[4096:], bytes.Repeat([]byte{0xa5}, 8192))
			replace(t, path, other)
		}, "database_damaged", []string{"masterd restore"}},
		{"another program's", header(68, 17), "database_foreign", []string{"configured path"}},
		{"of a newer masterd", header(60, 99), "database_newer", []string{"newer masterd"}},
		{"of an older masterd", header(60, 0), "database_older", []string{"masterd version between"}},
		{"missing", func() {
			if err := os.Rename(path, path+".away"); err != nil {
				t.Fatal(err)
			}
		}, "database_missing", []string{"masterd init", "masterd restore"}},
	} {
		c.wreck()
		refuse(t, c.name, c.code, c.do, "serve")
		if c.code != "database_missing" {
			refuse(t, c.name, "database_exists", []string{"moves it away"}, "init")
		}
	}
	if left, _ := filepath.Glob(path + "*"); len(left) != 2 { // the one away, and the lock
		t.Errorf("something was made: %v", left)
	}
	if err := os.Rename(path+".away", path); err != nil {
		t.Fatal(err)
	}
	replace(t, path, good)
	if err := salt.StartMasterd(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a := await(t, s.Request); a != kept {
		t.Errorf("%+v is %+v now", kept, a)
	}
	refuse(t, "under a running masterd", "database_locked", []string{"one masterd a database"}, "serve")
}

// refuse runs a command of masterd's that must fail with a code and say what to do.
func refuse(t *testing.T, name, code string, do []string, args ...string) {
	t.Helper()
	r, err := salt.MasterdCommand(t.Context(), append(args, "--config", salt.MasterdConfigPath())...)
	if err != nil || r.Code == 0 || !strings.Contains(r.Stderr, "("+code+")") {
		t.Errorf("%s: %s: %v, status %d: %s", name, args[0], err, r.Code, r.Stderr)
	}
	for _, text := range do {
		if !strings.Contains(r.Stderr, text) {
			t.Errorf("%s: %q isn't said: %s", name, text, r.Stderr)
		}
	}
}
