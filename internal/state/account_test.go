package state_test

import (
	"math/rand/v2"
	"testing"

	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/state"
)

// Invariant 8: every declared state is accounted for, and success means true
// for each of them and nothing else that failed.
func TestAccount(t *testing.T) {
	a := state.ResultKey{Module: "test", ID: "a", Name: "a", Function: "nop"}
	b := state.ResultKey{Module: "test", ID: "b", Name: "n", Function: "nop"}
	keyA, keyB, extra := "test_|-a_|-a_|-nop", "test_|-b_|-n_|-nop", "service_|-listener_a_|-a_|-mod_watch"
	both := []state.ResultKey{a, b}
	for _, c := range []struct {
		name     string
		expected []state.ResultKey
		got      []state.KeyedResult
		want     state.Outcome
	}{
		{"all true", both, []state.KeyedResult{{keyB, state.True}, {keyA, state.True}}, state.Outcome{Declared: 2, Passed: 2}},
		{"one false", both, []state.KeyedResult{{keyA, state.True}, {keyB, state.False}}, state.Outcome{Declared: 2, Passed: 1, Failed: 1, Code: problem.StateFailed}},
		{"null is not true", both, []state.KeyedResult{{keyA, state.True}, {keyB, state.Null}}, state.Outcome{Declared: 2, Passed: 1, Failed: 1, Code: problem.StateFailed}},
		{"neither is anything else", both, []state.KeyedResult{{keyA, state.True}, {keyB, state.Other}}, state.Outcome{Declared: 2, Passed: 1, Failed: 1, Code: problem.StateFailed}},
		{"one missing", both, []state.KeyedResult{{keyA, state.True}}, state.Outcome{Declared: 2, Passed: 1, NotRun: 1, Code: problem.NotAllAccounted}},
		{"a result without a result", both, []state.KeyedResult{{keyA, state.True}, {keyB, state.Missing}}, state.Outcome{Declared: 2, Passed: 1, NotRun: 1, Code: problem.NotAllAccounted}},
		{"failhard: one false, one missing", both, []state.KeyedResult{{keyA, state.False}}, state.Outcome{Declared: 2, Failed: 1, NotRun: 1, Code: problem.StateFailed}},
		{"nothing", both, nil, state.Outcome{Declared: 2, NotRun: 2, Code: problem.NotAllAccounted}},
		{"a listener that worked", both, []state.KeyedResult{{keyA, state.True}, {keyB, state.True}, {extra, state.True}}, state.Outcome{Declared: 2, Passed: 2}},
		{"a listener that failed", both, []state.KeyedResult{{keyA, state.True}, {keyB, state.True}, {extra, state.False}}, state.Outcome{Declared: 2, Passed: 2, Code: problem.StateFailed}},
		{"a listener without a result", both, []state.KeyedResult{{keyA, state.True}, {keyB, state.True}, {extra, state.Missing}}, state.Outcome{Declared: 2, Passed: 2, Code: problem.StateFailed}},
		{"almost the key", both, []state.KeyedResult{{keyA, state.True}, {keyB + " ", state.True}}, state.Outcome{Declared: 2, Passed: 1, NotRun: 1, Code: problem.NotAllAccounted}},
		{"one key twice, then worse", both, []state.KeyedResult{{keyA, state.True}, {keyB, state.True}, {keyB, state.False}}, state.Outcome{Declared: 2, Passed: 1, Failed: 1, Code: problem.StateFailed}},
		{"one key twice, then better", both, []state.KeyedResult{{keyB, state.False}, {keyA, state.True}, {keyB, state.True}}, state.Outcome{Declared: 2, Passed: 1, Failed: 1, Code: problem.StateFailed}},
		{"nothing declared is no success", nil, nil, state.Outcome{Code: problem.NotAllAccounted}},
	} {
		if got := state.Account(c.expected, c.got); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// Invariant 8 as a property: whatever comes back, the counts add up, and no
// code means that each declared key is there with true and all others are true.
func TestAccountProperty(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		var expected []state.ResultKey
		for i := range r.IntN(5) {
			expected = append(expected, state.ResultKey{Module: "m", ID: string(rune('a' + i)), Name: "n", Function: "f"})
		}
		var got []state.KeyedResult
		for range r.IntN(7) {
			k := state.ResultKey{Module: "m", ID: string(rune('a' + r.IntN(7))), Name: "n", Function: "f"}
			result := state.True
			if r.IntN(6) == 0 {
				result = state.Result(r.IntN(5))
			}
			got = append(got, state.KeyedResult{Key: k.String(), Result: result})
		}
		o := state.Account(expected, got)
		if o.Declared != len(expected) || o.Passed+o.Failed+o.NotRun != o.Declared {
			t.Fatalf("%+v of %v", o, got)
		}
		seen := map[string]bool{}
		allTrue := true
		for _, g := range got {
			seen[g.Key] = true
			allTrue = allTrue && g.Result == state.True
		}
		for _, k := range expected {
			allTrue = allTrue && seen[k.String()]
		}
		if success := o.Code == ""; success != (allTrue && len(expected) > 0) {
			t.Fatalf("%+v of %v with %v", o, expected, got)
		}
	}
}
