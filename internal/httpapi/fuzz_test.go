package httpapi_test

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/oduflow/oduflow-salt/internal/httpapi"
	"github.com/oduflow/oduflow-salt/internal/httpapi/token"
)

var (
	fuzzUUID   = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	fuzzTarget = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._:@+-]{0,252}$`)
	fuzzDigest = regexp.MustCompile(`^([0-9a-f]{64})?$`)
	fuzzLabel  = regexp.MustCompile(`^[A-Za-z0-9._@:/ -]{0,64}$`)
)

// Whatever a body is, the answer is 200 or a refusal in 4xx, and what gets to
// the service has the shape that was promised to it.
func FuzzCustomStart(f *testing.F) {
	f.Add(`{"request":"` + requestA + `","target":"web1","instance":"` + instanceA + `","source":"a","revision":7}`)
	f.Add(`{"request":"` + requestA + `","target":"web1","instance":"` + instanceA + `","source":"\ud83d\ude00","revision":7,"digest":"` +
		strings.Repeat("a", 64) + `","previous":"` + instanceA + `","again":true,"requester":"a b","accept_until":"2026-11-30T18:00:00Z"}`)
	f.Add(`{"request":"\ud83d"}`)
	f.Add(`{"a":1,"a":2}`)
	f.Add("{}{}")
	f.Add("\\u")
	toks := newTokens(f)
	svc := &service{}
	handler := httpapi.NewHandler(httpapi.Config{Service: svc, Tokens: toks, Now: realNow})
	f.Fuzz(func(t *testing.T, body string) {
		svc.starts = nil
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/custom_start", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+toks.text[token.Custom])
		w := newRecorder()
		handler.ServeHTTP(w, r)
		if !json.Valid(w.body.Bytes()) || !utf8.Valid(w.body.Bytes()) {
			t.Fatalf("the answer isn't JSON: %q", w.body.String())
		}
		if len(svc.starts) == 0 {
			if w.status != 400 && w.status != 413 {
				t.Fatalf("status %d", w.status)
			}
			return
		}
		got := svc.starts[0]
		var sent struct{ Source string }
		if err := json.Unmarshal([]byte(body), &sent); err != nil || sent.Source != string(got.Source) {
			t.Fatalf("source %q was sent as %q (%v)", got.Source, sent.Source, err)
		}
		if !utf8.Valid(got.Source) || !fuzzUUID.MatchString(got.Request) || !fuzzUUID.MatchString(got.Instance) ||
			got.Previous != "" && !fuzzUUID.MatchString(got.Previous) || !fuzzTarget.MatchString(got.Target) ||
			!fuzzDigest.MatchString(got.Digest) || !fuzzLabel.MatchString(got.Requester) ||
			got.Revision < 0 || got.Revision > httpapi.MaxRevision || w.status != 200 {
			t.Fatalf("%+v got through, status %d", got, w.status)
		}
	})
}
