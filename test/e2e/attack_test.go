//go:build salt

package e2e

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/test/oduflow"
)

// forge sends, as a minion that has its own key and token, an event that looks
// like another minion's return. Salt's master can't tell.
const forge = `
import sys, json
import salt.config, salt.crypt, salt.channel.client
config, tag, data = sys.argv[1:4]
opts = salt.config.minion_config(config)
opts["master_uri"] = "tcp://{}:{}".format(opts["master"], opts["master_port"])
opts["master_ip"] = opts["master"]
auth = salt.crypt.SAuth(opts)
load = {"cmd": "_minion_event", "id": opts["id"], "tok": auth.gen_token(b"salt"),
        "events": [{"tag": tag, "data": json.loads(data)}]}
with salt.channel.client.ReqChannel.factory(opts) as channel:
    channel.send(load, timeout=10)
`

func forgeReturn(t *testing.T, jid, minion, text string) {
	t.Helper()
	data, _ := json.Marshal(map[string]any{
		"jid": jid, "id": minion, "fun": "oduflow.start", "fun_args": []string{}, "return": text,
		"retcode": 0, "success": true, "_stamp": "2026-11-30T00:00:00.000000",
	})
	r, err := salt.Run(t.Context(), salt.Caller, "python", "-c", forge,
		filepath.Join(salt.MinionDir(forger).Config, "minion"), "salt/job/"+jid+"/ret/"+minion, string(data))
	if err != nil || r.Code != 0 {
		t.Fatalf("forging: %v %s", err, r.Stderr)
	}
}

func strays(t *testing.T) float64 {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://masterd/v1/health", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := salt.SocketClient().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var h map[string]any
	if err := json.NewDecoder(resp.Body).Decode(&h); err != nil {
		t.Fatal(err)
	}
	n, ok := h["bad_answers"].(float64)
	if !ok {
		t.Fatalf("health has no bad_answers: %v", h)
	}
	return n
}

// salt-facts "Nothing on the event bus is proof": a forged return changes
// nothing and is counted.
func TestAForgedReturnProvesNothing(t *testing.T) {
	dir := scratch(t)
	s := request(t, plain, strings.ReplaceAll(held, "%[1]s", dir)+"fails:\n  test.fail_without_changes: []\n")
	begin(t, s)
	awaitFile(t, filepath.Join(dir, "runs"))
	running := awaitStatus(t, s.Request, "running")
	before := strays(t)
	lie, _ := json.Marshal(message.Answer{
		Protocol: message.Protocol, Kind: message.Start, Request: s.Request, Target: s.Target, Nonce: strings.Repeat("ab", 16),
		Result: message.Finished, Digest: running.Digest, Counts: &message.Counts{Declared: 3, Passed: 3},
	})
	text := "odf1." + base64.RawURLEncoding.EncodeToString(lie) + "." + base64.RawURLEncoding.EncodeToString(make([]byte, 32))
	forgeReturn(t, running.JID, s.Target, text)
	awaitThat(t, "the forged return to be counted", func() bool { return strays(t) > before })
	if a, err := odoo.CustomStatus(t.Context(), s.Request, 0); err != nil || a.Status != "running" {
		t.Errorf("after the forged return: %v %v", a.Status, err)
	}
	touch(t, filepath.Join(dir, "go"))
	a := await(t, s.Request)
	want(t, a, "failed", "state_failed")
	wantCounts(t, a, 3, 2, 1, 0)
}

var startArgument = regexp.MustCompile(`[A-Za-z0-9+/=]{400,}`)

// theStart finds the sealed start of a JID in the master's job cache.
func theStart(t *testing.T, jid string) string {
	t.Helper()
	found := ""
	err := filepath.WalkDir(filepath.Join(salt.CacheDir(), "jobs"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != ".load.p" {
			return nil // went away meanwhile
		}
		raw, err := os.ReadFile(path)
		if err == nil && bytes.Contains(raw, []byte(jid)) {
			found = string(startArgument.Find(raw))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found == "" {
		t.Fatal("no start in the job cache")
	}
	return found
}

// rejections gives a minion's own counters, added up.
func rejections(t *testing.T, i int) int {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(salt.MinionDir(i).State, "counters.json"))
	if err != nil {
		return 0
	}
	n := 0
	for _, digits := range regexp.MustCompile(`":\s*(\d+)`).FindAllStringSubmatch(string(raw), -1) {
		var v int
		_, _ = fmt.Sscan(digits[1], &v)
		n += v
	}
	return n
}

// B11: a whole start replayed, to the same minion and to another, runs nothing,
// changes nothing and is counted.
func TestAReplayedStartRunsNothing(t *testing.T) {
	dir := scratch(t)
	s := request(t, plain, fmt.Sprintf("once:\n  cmd.run:\n    - name: echo run >> %s/runs\n", dir))
	a := apply(t, s)
	want(t, a, "succeeded", "")
	text := theStart(t, a.JID)
	for _, i := range []int{plain, forger} {
		before := rejections(t, i)
		if _, err := salt.Salt(t.Context(), name(i), "oduflow.start", text); err != nil {
			t.Fatal(err)
		}
		if i == forger && rejections(t, i) <= before {
			t.Errorf("%s didn't count the replay", name(i))
		}
	}
	if runs := lines(t, filepath.Join(dir, "runs")); len(runs) != 1 {
		t.Errorf("ran %d times", len(runs))
	}
	if after := await(t, s.Request); after.FinishedAt != a.FinishedAt || after.Status != a.Status {
		t.Errorf("the receipt became %+v", after)
	}
}

// protocol.md "Messages": signed by another key, or by none.
func TestMessagesOfAnotherKeyRunNothing(t *testing.T) {
	pem, err := os.ReadFile(filepath.Join(salt.PKIDir(), "minions", name(plain)))
	if err != nil {
		t.Fatal(err)
	}
	_, other, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	body, err := message.EncodeBody(message.Body{ResultKey: make([]byte, message.ResultKeySize), Profile: "custom"})
	if err != nil {
		t.Fatal(err)
	}
	seal := func(kind message.Kind, key ed25519.PrivateKey) string {
		nonce, err := message.NewNonce(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		text, err := message.Seal(message.Message{
			Protocol: message.Protocol, Kind: kind, Target: name(plain), Instance: instance[plain],
			Request: oduflow.NewUUID(), Digest: strings.Repeat("0", 64), Nonce: nonce, Body: body,
		}, key, string(pem))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	records := func() int {
		entries, _ := os.ReadDir(filepath.Join(salt.MinionDir(plain).State, "records"))
		return len(entries)
	}
	before, counted := records(), rejections(t, plain)
	for _, kind := range []message.Kind{message.Prepare, message.Start, message.Evidence, message.Update} {
		for label, text := range map[string]string{"another key": seal(kind, other), "garbage": "bm90IHNlYWxlZA==", "not base64": "!"} {
			r, err := salt.Salt(t.Context(), name(plain), "oduflow."+string(kind), text)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(r.Stdout, "odf1.") {
				t.Errorf("%s with %s was answered", kind, label)
			}
		}
	}
	if after := records(); after != before {
		t.Errorf("%d records became %d", before, after)
	}
	if n := rejections(t, plain) - counted; n < 12 {
		t.Errorf("12 bad messages were counted as %d", n)
	}
}

// design.md "Trust": a listener on the request port that isn't the master's is
// not given the key.
func TestAForeignListenerGetsNoKey(t *testing.T) {
	if !salt.Root {
		t.Skip("needs root: without it every listener is the caller's own")
	}
	if err := salt.StopMaster(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := listenAsNobody(t)
	s := request(t, plain, ordered)
	_, err := odoo.CustomStart(t.Context(), s) // 503 once the bus is gone, or refused
	if err == nil {
		a := await(t, s.Request)
		if a.Status != "failed" || a.Preflight.Passed != 0 {
			t.Errorf("with a foreign listener: %s %s", a.Status, a.Code)
		}
	} else if r := refusal(t, err); r.Code != "deaf" {
		t.Errorf("with a foreign listener: %v", r)
	}
	raw := got()
	key, err := os.ReadFile(salt.KeyFile())
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(raw, bytes.TrimSpace(key)) || bytes.Contains(raw, []byte("publish")) {
		t.Error("the foreign listener was given the key")
	}
	if err := salt.StartMaster(t.Context()); err != nil {
		t.Fatal(err)
	}
	awaitMinions(t.Context(), t)
	awaitThat(t, "masterd to hear the bus again", func() bool {
		_, err := odoo.CustomStart(t.Context(), s)
		return err == nil
	})
}
