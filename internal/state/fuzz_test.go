package state_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/oduflow/oduflow-salt/internal/state"
)

func seedSources(f *testing.F) {
	for _, c := range readCases(f) {
		f.Add([]byte(c.Source))
	}
	files, err := filepath.Glob("../../test/statelang/sls/*.sls")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	for _, s := range worst() {
		if len(s) > 400 {
			s = s[:400]
		}
		f.Add([]byte(s))
	}
}

// A1, A5, A6: no panic and no hang on anything, and what is promised of every
// answer holds.
func FuzzParse(f *testing.F) {
	seedSources(f)
	f.Fuzz(func(t *testing.T, source []byte) {
		kept := bytes.Clone(source)
		d, errs := state.Parse(source)
		if !bytes.Equal(kept, source) {
			t.Fatal("the source was changed")
		}
		if (d == nil) == (len(errs) == 0) {
			t.Fatal("neither accepted nor refused, or both")
		}
		if d == nil {
			if bytes.ContainsAny(source, "\r\ufeff") || !json.Valid([]byte(`""`)) {
				return // wellFormed counts lines in its own way
			}
			wellFormed(t, strings.ToValidUTF8(string(source), "?"), errs)
			return
		}
		again, err := state.Decode(d.Canonical())
		if err != nil {
			t.Fatalf("the canonical form doesn't decode: %v", err)
		}
		high, err := d.High()
		if err != nil {
			t.Fatal(err)
		}
		a, err := high.MarshalJSON()
		if err != nil || !json.Valid(a) {
			t.Fatalf("high data isn't JSON: %v", err)
		}
		decoded, err := again.High()
		if err != nil {
			t.Fatal(err)
		}
		if b, err := decoded.MarshalJSON(); err != nil || !bytes.Equal(a, b) || again.Digest() != d.Digest() {
			t.Fatalf("decoding changed it: %v", err)
		}
		keys := map[string]bool{}
		for _, k := range d.Expected() {
			if keys[k.String()] {
				t.Fatalf("one key twice: %q", k)
			}
			keys[k.String()] = true
		}
		if len(keys) != d.Declared() || d.Declared() == 0 {
			t.Fatalf("%d keys, %d declared", len(keys), d.Declared())
		}
		if !bytes.ContainsRune(source, '\r') && len(source) < state.MaxSourceBytes/2 {
			crlf, errs := state.Parse(bytes.ReplaceAll(source, []byte("\n"), []byte("\r\n")))
			if crlf == nil || crlf.Digest() != d.Digest() {
				t.Fatalf("line ends matter: %v", errs)
			}
		}
	})
}

// A13: no panic and no hang on anything a minion could get, and nothing but
// canonical forms is taken.
func FuzzDecode(f *testing.F) {
	for _, c := range readCases(f) {
		if d, _ := state.Parse([]byte(c.Source)); d != nil {
			f.Add(d.Canonical())
		}
	}
	f.Add([]byte(`{"version":1,"states":{"a":{"b.c":[{"v":{"\u0000map":[[1,2.5],[null,true]]}}]}}}`))
	f.Fuzz(func(t *testing.T, canonical []byte) {
		d, err := state.Decode(canonical)
		if err == nil && !bytes.Equal(d.Canonical(), canonical) {
			t.Fatal("taken, and not canonical")
		}
	})
}
