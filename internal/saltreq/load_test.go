package saltreq

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
)

// ordered decodes a map and keeps the order of its keys.
func ordered(t *testing.T, dec *msgpack.Decoder) (keys []string, values map[string]any) {
	t.Helper()
	n, err := dec.DecodeMapLen()
	if err != nil {
		t.Fatal(err)
	}
	values = map[string]any{}
	for range n {
		key, err := dec.DecodeString()
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key)
		if key == "load" {
			inner, load := ordered(t, dec)
			values[key], values["order"] = load, inner
			continue
		}
		v, err := dec.DecodeInterface()
		if err != nil {
			t.Fatal(err)
		}
		values[key] = v
	}
	return keys, values
}

func decodeRequest(t *testing.T, raw []byte) (order []string, load map[string]any) {
	t.Helper()
	r := bytes.NewReader(raw)
	keys, top := ordered(t, msgpack.NewDecoder(r))
	if r.Len() != 0 {
		t.Fatalf("%d bytes after the request", r.Len())
	}
	if want := []string{"enc", "version", "load"}; !reflect.DeepEqual(keys, want) {
		t.Fatalf("envelope %v, want %v", keys, want)
	}
	if top["enc"] != "clear" || top["version"] != int8(3) {
		t.Fatalf("envelope %v %v", top["enc"], top["version"])
	}
	return top["order"].([]string), top["load"].(map[string]any)
}

// checkPublish says what a publish on the wire may be, on its encoded bytes.
func checkPublish(t *testing.T, raw []byte, p Publish, user, key string) {
	t.Helper()
	order, load := decodeRequest(t, raw)
	if want := []string{"cmd", "fun", "arg", "tgt", "tgt_type", "user", "ret", "jid", "kwargs", "key"}; !reflect.DeepEqual(order, want) {
		t.Fatalf("fields %v, want %v", order, want)
	}
	arg := p.Arg
	if p.Fun == PillarRefresh {
		arg = "wait=True"
	}
	want := map[string]any{
		"cmd": "publish", "fun": p.Fun.String(), "arg": []any{arg}, "tgt": []any{p.Target}, "tgt_type": "list",
		"user": user, "ret": "", "jid": p.JID, "kwargs": map[string]any{}, "key": key,
	}
	if !reflect.DeepEqual(load, want) {
		t.Fatalf("load %v\nwant %v", load, want)
	}
	for _, word := range []string{"ret_kwargs", "ret_config", "module_executors", "executor_opts", "cmd.run"} {
		if bytes.Contains(raw, []byte(word)) {
			t.Fatalf("%q is in the request", word)
		}
	}
}

// A14 and the main job's «a test on the encoded bytes»: whatever is asked for,
// a publish has no ret, kwargs, list as fun or other user.
func TestEveryPublishOnTheWire(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const chars = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	word := func(n int) string {
		var b strings.Builder
		for range n {
			b.WriteByte(chars[rng.IntN(len(chars))])
		}
		return b.String()
	}
	for _, fun := range Functions() {
		for range 200 {
			p := Publish{Fun: fun, Target: "m" + strings.Trim(word(rng.IntN(60)), "-"), JID: "20261130181033417609"}
			if fun.takesArg() {
				p.Arg = word(1 + rng.IntN(3000))
			}
			raw, err := encodePublish(p, "oduflow", "the+key/==")
			if err != nil {
				t.Fatal(err)
			}
			checkPublish(t, raw, p, "oduflow", "the+key/==")
		}
	}
}

func TestPublishRefusesShapes(t *testing.T) {
	good := Publish{Fun: Start, Target: "minion-1.example", Arg: "YWJjZA", JID: "20261130181033417609"}
	if _, err := encodePublish(good, "oduflow", "k"); err != nil {
		t.Fatal(err)
	}
	bad := map[string]func(*Publish){
		"no function":           func(p *Publish) { p.Fun = 0 },
		"a function beyond":     func(p *Publish) { p.Fun = PillarRefresh + 1 },
		"no target":             func(p *Publish) { p.Target = "" },
		"a glob":                func(p *Publish) { p.Target = "web*" },
		"a class":               func(p *Publish) { p.Target = "web[12]" },
		"a list":                func(p *Publish) { p.Target = "a,b" },
		"a path":                func(p *Publish) { p.Target = "../a" },
		"a line break":          func(p *Publish) { p.Target = "a\n" },
		"a blank":               func(p *Publish) { p.Target = "a b" },
		"an option":             func(p *Publish) { p.Target = "-a" },
		"a long target":         func(p *Publish) { p.Target = strings.Repeat("a", 256) },
		"no JID":                func(p *Publish) { p.JID = "" },
		"a short JID":           func(p *Publish) { p.JID = "2026113018103341760" },
		"another JID":           func(p *Publish) { p.JID = "2026113018103341760x" },
		"no argument":           func(p *Publish) { p.Arg = "" },
		"a keyword argument":    func(p *Publish) { p.Arg = "test=True" },
		"base64 with one sign":  func(p *Publish) { p.Arg = "YWJjZGU=" },
		"an argument in braces": func(p *Publish) { p.Arg = "{a: 1}" },
		"a blank inside":        func(p *Publish) { p.Arg = "a b" },
		"a null byte":           func(p *Publish) { p.Arg = "a\x00" },
		"too large":             func(p *Publish) { p.Arg = strings.Repeat("A", maxArg+1) },
		"argument of a refresh": func(p *Publish) { p.Fun = PillarRefresh },
	}
	for name, spoil := range bad {
		p := good
		spoil(&p)
		if raw, err := encodePublish(p, "oduflow", "k"); err == nil || raw != nil {
			t.Errorf("%s: encoded", name)
		}
	}
	// Two signs of padding are no keyword argument in Salt's expression.
	p := good
	p.Arg = "YWJjZA=="
	if _, err := encodePublish(p, "oduflow", "k"); err != nil {
		t.Error(err)
	}
}

func TestKeyPrintOnTheWire(t *testing.T) {
	raw, err := encodeKeyPrint("minion-1", "k")
	if err != nil {
		t.Fatal(err)
	}
	order, load := decodeRequest(t, raw)
	if want := []string{"cmd", "fun", "match", "key"}; !reflect.DeepEqual(order, want) {
		t.Fatalf("fields %v, want %v", order, want)
	}
	if want := map[string]any{"cmd": "wheel", "fun": "key.print", "match": "minion-1", "key": "k"}; !reflect.DeepEqual(load, want) {
		t.Fatalf("load %v", load)
	}
}
