package statelang_test

import (
	"os/exec"
	"testing"
)

// A9: a second, independent implementation of docs/canonical-form.md passes
// the test vectors.
func TestSecondImplementation(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	out, err := exec.CommandContext(t.Context(), python, "-B", "canonical.py", "../../internal/state/testdata/canonical-vectors.jsonl").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}
