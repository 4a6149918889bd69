//go:build salt

// Package statelang compares internal/state with real Salt. It needs a Salt
// virtual environment:
//
//	ODUFLOW_SALT_PYTHON=VENV/bin/python go test -tags salt ./test/statelang
//
// ODUFLOW_DIFFERENTIAL is how many generated sources the differential run
// takes (200000 where it isn't set), ODUFLOW_SEED where it begins.
package statelang

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// saltPython gives the interpreter of a Salt virtual environment.
func saltPython(t *testing.T) string {
	t.Helper()
	python := os.Getenv("ODUFLOW_SALT_PYTHON")
	if python == "" {
		t.Skip("ODUFLOW_SALT_PYTHON names no interpreter")
	}
	return python
}

// answer builds the program that puts internal/state behind a pipe.
func answer(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "answer")
	run(t, "go", "build", "-o", path, "./answer")
	return path
}

// run runs a program to its end and gives what it printed.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := try(t.Context(), name, args...)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return out
}

func try(ctx context.Context, name string, args ...string) (string, error) {
	c := exec.CommandContext(ctx, name, args...)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	// No user's configuration, no cached bytecode beside the sources.
	c.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "LC_ALL=C.UTF-8")
	err := c.Run()
	return out.String(), err
}

// A1, A4, A14: each SLS file gives the same result keys, order, results and
// changes through Salt's state.apply and, converted by us, through the fixed
// state.high; and the high data are those that Salt compiles itself.
func TestEquivalence(t *testing.T) {
	python, program := saltPython(t), answer(t)
	files, err := filepath.Glob("sls/*.sls")
	if err != nil || len(files) < 25 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".sls"), func(t *testing.T) {
			out, err := try(t.Context(), python, "equivalence.py", "--answer", program, "--scratch", t.TempDir(), file)
			if err != nil || !strings.Contains(out, "1 files, 0 different") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// A1, A4: generated scalars and documents have the value that Salt's own
// loader gives them, or are refused. There is no third outcome.
func TestDifferential(t *testing.T) {
	python, program := saltPython(t), answer(t)
	count, seed := "200000", "1"
	if n := os.Getenv("ODUFLOW_DIFFERENTIAL"); n != "" {
		count = n
	} else if testing.Short() {
		count = "10000"
	}
	if s := os.Getenv("ODUFLOW_SEED"); s != "" {
		seed = s
	}
	out, err := try(t.Context(), python, "differential.py", "--answer", program, "--count", count, "--seed", seed)
	if err != nil || !strings.Contains(out, "third outcomes: 0") {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Log(out)
}

// A9: the second implementation of the canonical form passes the vectors, and
// so does Salt's own loader: they are what it makes of their sources.
func TestVectors(t *testing.T) {
	python := saltPython(t)
	const vectors = "../../internal/state/testdata/canonical-vectors.jsonl"
	t.Log(run(t, python, "canonical.py", vectors))
	want, err := os.ReadFile(vectors)
	if err != nil {
		t.Fatal(err)
	}
	if got := run(t, python, "make_vectors.py"); got != string(want) {
		t.Error("Salt's loader makes other vectors")
	}
}
