package message_test

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/problem"
)

var resultKey = bytes.Repeat([]byte{9}, message.ResultKeySize)

func answerTo(q message.Message) message.Answer {
	return message.Answer{
		Protocol: message.Protocol, Executor: "test", Kind: q.Kind, Request: q.Request, Target: q.Target, Nonce: q.Nonce,
		Result: message.Finished, Digest: "d", Counts: &message.Counts{Declared: 2, Passed: 1, NotRun: 1}, Code: problem.NotAllAccounted,
	}
}

func encode(t *testing.T, a message.Answer) string {
	t.Helper()
	text, err := message.EncodeAnswer(a, resultKey)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestAnswer(t *testing.T) {
	q := sample(message.Start)
	text := encode(t, answerTo(q))
	if !message.LooksLikeAnswer(text) {
		t.Error("it doesn't look like an answer")
	}
	if nonce, ok := message.PeekNonce(text); !ok || nonce != q.Nonce {
		t.Errorf("the nonce is %q", nonce)
	}
	a, err := message.DecodeAnswer(text, resultKey, q)
	if err != nil || a.Result != message.Finished || *a.Counts != (message.Counts{Declared: 2, Passed: 1, NotRun: 1}) {
		t.Errorf("%+v, %v", a, err)
	}
}

// Invariant 3: an answer without the right MAC, or to another question, proves
// nothing.
func TestAnswerRefused(t *testing.T) {
	q := sample(message.Start)
	good := encode(t, answerTo(q))
	head, mac, _ := strings.Cut(strings.TrimPrefix(good, "odf1."), ".")
	raw, _ := base64.RawURLEncoding.DecodeString(head)
	better := base64.RawURLEncoding.EncodeToString(bytes.Replace(raw, []byte(`"passed":1`), []byte(`"passed":2`), 1))
	changed := func(change func(*message.Answer)) string {
		a := answerTo(q)
		change(&a)
		return encode(t, a)
	}
	for name, text := range map[string]string{
		"another kind":    changed(func(a *message.Answer) { a.Kind = message.Evidence }),
		"another request": changed(func(a *message.Answer) { a.Request = "x" }),
		"another target":  changed(func(a *message.Answer) { a.Target = "web2" }),
		"another nonce":   changed(func(a *message.Answer) { a.Nonce = strings.Repeat("00", 16) }),
		"better counts":   "odf1." + better + "." + mac,
		"no MAC":          "odf1." + head,
		"an empty MAC":    "odf1." + head + ".",
		"a short MAC":     good[:len(good)-2],
		"no prefix":       strings.TrimPrefix(good, "odf1."),
		"empty":           "",
		"prefix alone":    "odf1.",
		"too long":        good + strings.Repeat("A", message.MaxAnswer),
		"a refusal":       "oduflow: rejected message_unsigned",
	} {
		if _, err := message.DecodeAnswer(text, resultKey, q); problem.CodeOf(err) != message.BadAnswer {
			t.Errorf("%s: %v", name, err)
		}
	}
	wrong := append([]byte(nil), resultKey...)
	wrong[0] ^= 1
	if _, err := message.DecodeAnswer(good, wrong, q); problem.CodeOf(err) != message.BadAnswer {
		t.Errorf("another key: %v", err)
	}
}

// A newer executor may say more.
func TestAnswerWithMoreFields(t *testing.T) {
	q := sample(message.Prepare)
	a := answerTo(q)
	a.Code, a.Counts, a.Result = "", nil, message.Prepared
	text := encode(t, a)
	if strings.Contains(text, " ") || len(text) > 1024 {
		t.Errorf("an answer of %d bytes", len(text))
	}
	if _, err := message.DecodeAnswer(text, resultKey, q); err != nil {
		t.Error(err)
	}
}

func TestAnswerSize(t *testing.T) {
	a := answerTo(sample(message.Start))
	a.Executor = strings.Repeat("x", message.MaxAnswer)
	if _, err := message.EncodeAnswer(a, resultKey); problem.CodeOf(err) != problem.TooLarge {
		t.Error(err)
	}
}

func TestResultKey(t *testing.T) {
	secret := bytes.Repeat([]byte{1}, 32)
	seen := map[string]bool{}
	for _, in := range [][3]string{{"r", "t", "i"}, {"rt", "", "i"}, {"r", "ti", ""}, {"", "rt", "i"}, {"R", "t", "i"}} {
		key, err := message.ResultKey(secret, in[0], in[1], in[2])
		if err != nil || len(key) != message.ResultKeySize || seen[string(key)] {
			t.Errorf("%v: %x, %v", in, key, err)
		}
		seen[string(key)] = true
		again, _ := message.ResultKey(secret, in[0], in[1], in[2])
		if !bytes.Equal(key, again) {
			t.Errorf("%v: derived differently", in)
		}
	}
	otherSecret, _ := message.ResultKey(bytes.Repeat([]byte{2}, 32), "r", "t", "i")
	if seen[string(otherSecret)] {
		t.Error("two secrets give one key")
	}
}

func TestDraws(t *testing.T) {
	n, err := message.NewNonce(bytes.NewReader(bytes.Repeat([]byte{0xab}, 16)))
	if err != nil || n != strings.Repeat("ab", 16) {
		t.Error(n, err)
	}
	if _, err := message.NewTicket(bytes.NewReader(nil)); err == nil {
		t.Error("a ticket without randomness")
	}
}

// FuzzAnswer: whatever a bus brings, nothing panics and nothing passes.
func FuzzAnswer(f *testing.F) {
	f.Add("odf1.e30.AAAA")
	f.Add("odf1..")
	q := sample(message.Start)
	f.Fuzz(func(t *testing.T, text string) {
		_, _ = message.PeekNonce(text)
		if _, err := message.DecodeAnswer(text, resultKey, q); err == nil {
			t.Error("a forged answer passed")
		}
	})
}
