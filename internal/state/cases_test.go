package state_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/oduflow/oduflow-salt/internal/state"
)

// stateCase is one line of cases/state-language.jsonl.
type stateCase struct {
	Name   string          `json:"name"`
	Source string          `json:"source"`
	Expect string          `json:"expect"`
	Value  json.RawMessage `json:"value"`
	Line   *int            `json:"line"`
	Why    string          `json:"why"`
}

// readCases reads the copy that is kept here; the original, where it is
// there, has to be the same, so that the copy can't go stale unseen.
func readCases(t testing.TB) []stateCase {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", "state-language.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	if shared, err := os.ReadFile("../../../shared/cases/state-language.jsonl"); err == nil && !bytes.Equal(shared, raw) {
		t.Error("testdata/state-language.jsonl isn't the shared file any more: copy it again")
	}
	var cases []stateCase
	d := json.NewDecoder(bytes.NewReader(raw))
	for d.More() {
		var c stateCase
		if err := d.Decode(&c); err != nil {
			t.Fatal(err)
		}
		cases = append(cases, c)
	}
	if len(cases) < 70 {
		t.Fatalf("only %d cases", len(cases))
	}
	return cases
}

// A1, A4, A5, A6: every shared case is accepted with the value that Salt's
// loader gives it, in its order and with its types, or refused where it says.
func TestSharedCases(t *testing.T) {
	for _, c := range readCases(t) {
		t.Run(c.Name, func(t *testing.T) {
			d, errs := state.Parse([]byte(c.Source))
			if c.Expect == "refuse" {
				if d != nil || len(errs) == 0 {
					t.Fatalf("accepted: %s", d.Canonical())
				}
				if c.Line != nil && errs[0].Line != *c.Line {
					t.Errorf("refused at line %d, want %d: %v", errs[0].Line, *c.Line, errs[0])
				}
				for _, e := range errs {
					if e.Line < 1 || e.Column < 1 || e.Hint == "" || e.Code == "" {
						t.Errorf("incomplete refusal: %+v", e)
					}
				}
				return
			}
			if len(errs) > 0 {
				t.Fatalf("refused: %v", errs[0])
			}
			var want bytes.Buffer
			if err := json.Compact(&want, c.Value); err != nil {
				t.Fatal(err)
			}
			got := bytes.TrimSuffix(bytes.TrimPrefix(d.Canonical(), []byte(`{"version":1,"states":`)), []byte("}"))
			if !bytes.Equal(got, want.Bytes()) {
				t.Errorf("\n got %s\nwant %s", got, want.Bytes())
			}
			again, err := state.Decode(d.Canonical())
			if err != nil || again.Digest() != d.Digest() || again.Declared() != d.Declared() {
				t.Errorf("decoding the canonical form: %v", err)
			}
		})
	}
}
