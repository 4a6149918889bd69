package saltreq

import (
	"bytes"
	"testing"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/oduflow/oduflow-salt/internal/problem"
)

type m = map[string]any

const testJID = "20261130181033417609"

// Invariant 3, «proof or uncertain»: only these answers prove anything.
func TestClassify(t *testing.T) {
	clear := func(load any) m { return m{"enc": "clear", "load": load} }
	fault := func(name string) m { return m{"error": m{"name": name, "message": "x"}} }
	cases := []struct {
		name   string
		answer any
		want   Published
	}{
		{"sent", clear(m{"jid": testJID, "minions": []string{"a"}, "missing": []string{}}), Published{Sent, ""}},
		{"sent, without missing", clear(m{"jid": testJID, "minions": []string{"a"}}), Published{Sent, ""}},
		{"sent, as bin", clear(m{"jid": []byte(testJID), "minions": []any{[]byte("a")}}), Published{Sent, ""}},
		{"target error", clear(m{"jid": nil, "minions": []string{}, "error": "Master could not resolve minions for target ['a']"}), Published{NotSent, ReasonTargetUnmatched}},
		{"authentication", fault("AuthenticationError"), Published{NotSent, ReasonAuthentication}},
		{"authorization", fault("AuthorizationError"), Published{NotSent, ReasonAuthorization}},

		{"jid nil, no error", clear(m{"jid": nil, "minions": []string{}}), Published{Unknown, ReasonUnintelligible}},
		{"jid nil, empty error", clear(m{"jid": nil, "minions": []string{}, "error": ""}), Published{Unknown, ReasonUnintelligible}},
		{"jid nil, a minion", clear(m{"jid": nil, "minions": []string{"a"}, "error": "x"}), Published{Unknown, ReasonUnintelligible}},
		{"jid nil, no minions", clear(m{"jid": nil, "error": "x"}), Published{Unknown, ReasonUnintelligible}},
		{"no jid", clear(m{"minions": []string{}, "error": "x"}), Published{Unknown, ReasonUnintelligible}},
		{"other jid", clear(m{"jid": "20261130181033417610", "minions": []string{"a"}}), Published{Unknown, ReasonOtherJID}},
		{"jid as a number", clear(m{"jid": uint64(20261130181033417), "minions": []string{"a"}}), Published{Unknown, ReasonOtherJID}},
		{"two minions", clear(m{"jid": testJID, "minions": []string{"a", "b"}}), Published{Unknown, ReasonOtherMinions}},
		{"twice the target", clear(m{"jid": testJID, "minions": []string{"a", "a"}}), Published{Unknown, ReasonOtherMinions}},
		{"another minion", clear(m{"jid": testJID, "minions": []string{"b"}}), Published{Unknown, ReasonOtherMinions}},
		{"no minion", clear(m{"jid": testJID, "minions": []string{}}), Published{Unknown, ReasonOtherMinions}},
		{"minions as a string", clear(m{"jid": testJID, "minions": "a"}), Published{Unknown, ReasonOtherMinions}},
		{"missing the target", clear(m{"jid": testJID, "minions": []string{"a"}, "missing": []string{"a"}}), Published{Unknown, ReasonOtherMinions}},
		{"jid and error", clear(m{"jid": testJID, "minions": []string{"a"}, "error": "x"}), Published{Unknown, ReasonMasterError}},
		{"not clear", m{"enc": "aes", "load": m{"jid": testJID, "minions": []string{"a"}}}, Published{Unknown, ReasonUnintelligible}},
		{"error beside a load", m{"error": m{"name": "AuthenticationError"}, "load": m{"jid": testJID}}, Published{Unknown, ReasonMasterError}},
		{"other error", fault("SaltInvocationError"), Published{Unknown, ReasonMasterError}},
		{"login error of a wheel", fault("UserAuthenticationError"), Published{Unknown, ReasonMasterError}},
		{"error as text", m{"error": "Master failed to assign jid"}, Published{Unknown, ReasonMasterError}},
		{"error inside the load", clear(m{"error": m{"name": "AuthenticationError"}}), Published{Unknown, ReasonUnintelligible}},
		{"bad load", "bad load", Published{Unknown, ReasonMasterError}},
		{"exception", "Some exception handling minion payload", Published{Unknown, ReasonMasterError}},
		{"empty map", m{}, Published{Unknown, ReasonUnintelligible}},
		{"nil", nil, Published{Unknown, ReasonMasterError}},
		{"list", []any{}, Published{Unknown, ReasonMasterError}},
		{"number keys", map[int]any{1: 2}, Published{Unknown, ReasonUnintelligible}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			raw, err := msgpack.Marshal(c.answer)
			if err != nil {
				t.Fatal(err)
			}
			if got := classify(raw, testJID, "a"); got != c.want {
				t.Errorf("%v %q, want %v %q", got.Outcome, got.Reason, c.want.Outcome, c.want.Reason)
			}
			if got := classify(append(raw, 0xc0), testJID, "a"); got.Outcome != Unknown {
				t.Errorf("with a byte more: %v", got.Outcome)
			}
			if got := classify(raw[:len(raw)-1], testJID, "a"); got.Outcome != Unknown {
				t.Errorf("with a byte less: %v", got.Outcome)
			}
		})
	}
}

func TestClassifyDeepNesting(t *testing.T) {
	if got := classify(bytes.Repeat([]byte{0x91}, maxAnswer), testJID, "a"); got.Outcome != Unknown {
		t.Fatal(got)
	}
}

func TestKeyOf(t *testing.T) {
	answer := func(ret any, success any) m {
		return m{"tag": "salt/wheel/1", "data": m{"return": ret, "success": success}}
	}
	cases := []struct {
		name   string
		answer any
		pem    string
		code   problem.Code
	}{
		{"accepted", answer(m{"minions": m{"a": "PEM"}}, true), "PEM", ""},
		{"pending", answer(m{"minions_pre": m{"a": "PEM"}}, true), "", problem.TargetUnknown},
		{"denied beside", answer(m{"minions": m{}, "minions_denied": m{"a": "PEM"}}, true), "", problem.TargetUnknown},
		{"another ID", answer(m{"minions": m{"ab": "PEM"}}, true), "", problem.TargetUnknown},
		{"nothing", answer(m{}, true), "", problem.TargetUnknown},
		{"a list of keys", answer(m{"minions": m{"a": []string{"PEM"}}}, true), "", problem.TargetUnknown},
		{"minions as a list", answer(m{"minions": []string{"a"}}, true), "", problem.ExecutorSilent},
		{"no success", answer(m{"minions": m{"a": "PEM"}}, false), "", problem.ExecutorSilent},
		{"an exception", answer("Exception occurred in wheel", false), "", problem.ExecutorSilent},
		{"login refused", m{"error": m{"name": "UserAuthenticationError"}}, "", problem.ExecutorSilent},
		{"another error", m{"error": "x"}, "", problem.ExecutorSilent},
		{"bad load", "bad load", "", problem.ExecutorSilent},
		{"nil", nil, "", problem.ExecutorSilent},
		{"no data", m{}, "", problem.ExecutorSilent},
	}
	for _, c := range cases {
		raw, err := msgpack.Marshal(c.answer)
		if err != nil {
			t.Fatal(err)
		}
		got, err := keyOf(raw, "a")
		if got != c.pem || problem.CodeOf(err) != c.code {
			t.Errorf("%s: %q, %v", c.name, got, err)
		}
	}
}

func FuzzClassify(f *testing.F) {
	seed, _ := msgpack.Marshal(m{"enc": "clear", "load": m{"jid": testJID, "minions": []string{"a"}, "missing": []string{}}})
	f.Add(seed)
	seed, _ = msgpack.Marshal(m{"error": m{"name": "AuthenticationError"}})
	f.Add(seed)
	f.Fuzz(func(t *testing.T, raw []byte) {
		got := classify(raw, testJID, "a")
		if got.Outcome == NotAttempted || got.Outcome.String() == "invalid" {
			t.Fatalf("%v", got)
		}
		if got.Outcome == Sent && !bytes.Contains(raw, []byte(testJID)) {
			t.Fatalf("sent, without our JID: %q", raw)
		}
		_, _ = keyOf(raw, "a")
	})
}

// The guard may never hand a refused header over whole, however reads are cut.
func FuzzFrameGuard(f *testing.F) {
	greeting := make([]byte, greetingSize)
	f.Add(append(greeting, 0x04, 3, 1, 2, 3, 0x01, 0, 0x02, 0, 0, 0, 0, 0, 0, 1, 0), uint8(3))
	f.Add(append(greeting, 0x02, 0x40, 0, 0, 0, 0, 0, 0, 0), uint8(1))
	f.Fuzz(func(t *testing.T, raw []byte, step uint8) {
		g := &frameGuard{}
		passed := 0
		for rest := raw; len(rest) > 0; {
			n := min(int(step)+1, len(rest))
			bad := g.pass(rest[:n])
			if bad >= 0 {
				passed += bad
				break
			}
			passed, rest = passed+n, rest[n:]
		}
		if passed > maxTotal {
			t.Fatalf("%d bytes passed", passed)
		}
		// Read what was passed as zmq4 does: no whole header may be too large.
		for b := raw[min(passed, greetingSize):passed]; ; {
			head := b[:min(len(b), 9)]
			if len(head) >= 2 && head[0]&2 == 0 {
				head = head[:2]
			}
			size, whole := frameSize(head)
			if !whole {
				break
			}
			if size > maxAnswer {
				t.Fatalf("a header of %d bytes passed", size)
			}
			b = b[len(head):]
			if size > uint64(len(b)) {
				break
			}
			b = b[size:]
		}
	})
}
