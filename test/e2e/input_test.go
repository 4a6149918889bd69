//go:build salt

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/oduflow/oduflow-salt/test/oduflow"
)

// A5, A6: bad input has a clear error with a stable code, and nothing is stored.
func TestBadInputStoresNothing(t *testing.T) {
	narrow, err := salt.Token(t.Context(), "status", "narrow")
	if err != nil {
		t.Fatal(err)
	}
	good := request(t, plain, "a:\n  test.nop: []\n")
	body := func(change map[string]any) string {
		m := map[string]any{}
		raw, _ := json.Marshal(good)
		_ = json.Unmarshal(raw, &m)
		for k, v := range change {
			if v == nil {
				delete(m, k)
			} else {
				m[k] = v
			}
		}
		raw, _ = json.Marshal(m)
		return string(raw)
	}
	bearer := "Bearer " + token
	cases := map[string]struct {
		body, contentType, bearer string
		status                    int
		code                      string
	}{
		"not JSON":           {"{", "application/json", bearer, 400, "bad_request"},
		"a list":             {"[]", "application/json", bearer, 400, "bad_request"},
		"10 MB":              {`{"source": "` + strings.Repeat("x", 10<<20) + `"}`, "application/json", bearer, 413, "too_large"},
		"an unknown field":   {body(map[string]any{"function": "cmd.run"}), "application/json", bearer, 400, "unknown_field"},
		"a bad UUID":         {body(map[string]any{"request": "7"}), "application/json", bearer, 400, "bad_field"},
		"a glob target":      {body(map[string]any{"target": "minion-*"}), "application/json", bearer, 400, "bad_field"},
		"a list target":      {body(map[string]any{"target": []string{"minion-1"}}), "application/json", bearer, 400, "bad_field"},
		"no revision":        {body(map[string]any{"revision": nil}), "application/json", bearer, 400, "bad_field"},
		"a bad requester":    {body(map[string]any{"requester": "x\ny"}), "application/json", bearer, 400, "bad_field"},
		"another type":       {body(nil), "text/plain", bearer, 415, "unsupported_type"},
		"no type":            {body(nil), "", bearer, 415, "unsupported_type"},
		"no token":           {body(nil), "application/json", "", 401, "unauthorized"},
		"a wrong token":      {body(nil), "application/json", "Bearer odf_0000000000_wrong", 401, "unauthorized"},
		"a narrower token":   {body(nil), "application/json", "Bearer " + narrow, 403, "forbidden"},
		"a template":         {body(map[string]any{"source": "a:\n  test.nop:\n    - x: {{ y }}\n"}), "application/json", bearer, 422, "jinja"},
		"65 KiB":             {body(map[string]any{"source": "# " + strings.Repeat("x", 65<<10) + "\na:\n  test.nop: []\n"}), "application/json", bearer, 422, "source_too_large"},
		"another digest":     {body(map[string]any{"digest": strings.Repeat("0", 64)}), "application/json", bearer, 409, "digest_mismatch"},
		"too late":           {body(map[string]any{"accept_until": "2020-01-01T00:00:00Z"}), "application/json", bearer, 409, "accept_until_passed"},
		"a previous unknown": {body(map[string]any{"previous": oduflow.NewUUID()}), "application/json", bearer, 409, "previous_not_failed"},
	}
	for label, c := range cases {
		t.Run(label, func(t *testing.T) {
			status, text := post(t, "custom_start", c.contentType, c.bearer, strings.NewReader(c.body))
			var answer struct{ Error oduflow.Refusal }
			if err := json.Unmarshal([]byte(text), &answer); err != nil {
				t.Fatalf("%d without an error object: %.200s", status, text)
			}
			if status != c.status || answer.Error.Code != c.code || answer.Error.Message == "" {
				t.Errorf("%d %s %q, want %d %s", status, answer.Error.Code, answer.Error.Message, c.status, c.code)
			}
		})
	}
	_, err = odoo.CustomStatus(t.Context(), good.Request, 0)
	if r := refusal(t, err); r.Code != "unknown_request" {
		t.Errorf("something was stored: %v", r)
	}
	// A narrower token may ask for status.
	status, text := post(t, "custom_status", "application/json", "Bearer "+narrow, strings.NewReader(fmt.Sprintf(`{"request": %q}`, good.Request)))
	if status != http.StatusNotFound || !strings.Contains(text, "unknown_request") {
		t.Errorf("status with the narrower token: %d %s", status, text)
	}
}

// A1, A6: validation executes nothing, and says the same over HTTPS as the
// runner does.
func TestStateValidate(t *testing.T) {
	var v struct {
		OK     bool
		Digest string
		States int
		Errors []oduflow.Refusal
	}
	if err := odoo.Call(t.Context(), "state_validate", map[string]any{"source": ordered}, &v); err != nil {
		t.Fatal(err)
	}
	if !v.OK || v.States != 3 || len(v.Digest) != 64 {
		t.Errorf("%+v", v)
	}
	if err := odoo.Call(t.Context(), "state_validate", map[string]any{"source": "include:\n  - x\na: pkg.installed\n"}, &v); err != nil {
		t.Fatal(err)
	}
	if v.OK || len(v.Errors) < 2 || v.Errors[0].Line != 1 || v.Errors[1].Line != 3 {
		t.Errorf("%+v", v)
	}
}

// A6: a source of exactly 64 KiB and 100 IDs goes all the way to a real minion;
// one byte more is refused.
func TestTheLargestSource(t *testing.T) {
	const limit, ids = 64 << 10, 100
	var b strings.Builder
	for n := range ids {
		fmt.Fprintf(&b, "state %d:\n  test.nop:\n    - name: %s%d\n", n, strings.Repeat("x", 560), n)
	}
	source := b.String()
	source += "# " + strings.Repeat("c", limit-len(source)-3) + "\n"
	s := request(t, plain, source)
	a := apply(t, s)
	want(t, a, "succeeded", "")
	wantCounts(t, a, ids, ids, 0, 0)
	s = request(t, plain, source+"#")
	if _, err := odoo.CustomStart(t.Context(), s); len(source) != limit || refusal(t, err).Code != "source_too_large" {
		t.Errorf("%d bytes: %v", len(s.Source), err)
	}
}
