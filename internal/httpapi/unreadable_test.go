package httpapi_test

import (
	"context"
	"testing"

	"github.com/oduflow/oduflow-salt/internal/httpapi"
	"github.com/oduflow/oduflow-salt/internal/httpapi/token"
	"github.com/oduflow/oduflow-salt/internal/problem"
)

type unreadable struct{}

func (unreadable) Check(context.Context, token.Hash) (token.Token, bool, error) {
	return token.Token{}, false, problem.New(problem.NotWritable, "the receipt database can't be read")
}

// Issue 5, 6: while the database can't be read nobody knows whether a token is
// good. Its caller is told to come again, and not that it was never let in.
func TestTokenThatCantBeLookedUp(t *testing.T) {
	a := newAPI(t, func(c *httpapi.Config) { c.Tokens = unreadable{} })
	for _, path := range []string{"/v1/custom_start", "/v1/custom_status"} {
		g := a.postTLS(t, path, "Bearer "+a.tokens.text[token.Custom], startBody(t, nil))
		if g.status != 503 || g.code() != "not_writable" || g.header.Get("Retry-After") == "" {
			t.Errorf("%s: status %d: %s", path, g.status, g.raw)
		}
	}
	if n := a.reached(); n != 0 {
		t.Errorf("%d calls got through", n)
	}
}
