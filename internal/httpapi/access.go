package httpapi

import (
	"crypto/subtle"
	"strings"

	"github.com/oduflow/oduflow-salt/internal/httpapi/token"
	"github.com/oduflow/oduflow-salt/internal/problem"
)

// allow says whether the caller may use an entry point that needs scope. On
// the Unix socket the folder's group is the authorisation; over TLS a token.
func (c *call) allow(scope token.Scope) error {
	if c.peer.unix {
		return nil
	}
	t, err := c.bearer()
	if err != nil {
		return err
	}
	if !t.Scope.Includes(scope) {
		return problem.New(problem.Forbidden, "this token's scope is %q, and %s needs %q", t.Scope, c.path, scope).
			WithHint("an operator makes another one on the master: masterd token create --scope %s --name NAME", scope)
	}
	return nil
}

// bearer gives the token that the caller showed. What is wrong with it is not
// said: whoever has none shall learn nothing about the ones that exist.
func (c *call) bearer() (token.Token, error) {
	unauthorized := problem.New(problem.Unauthorized, "no bearer token, or one that isn't known").
		WithHint("send the header: Authorization: Bearer TOKEN")
	values := c.r.Header.Values("Authorization")
	if len(values) != 1 {
		return token.Token{}, unauthorized
	}
	scheme, text, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return token.Token{}, unauthorized
	}
	text = strings.TrimLeft(text, " ")
	id, ok := token.IDOf(text)
	if !ok || c.tokens == nil {
		return token.Token{}, unauthorized
	}
	// Looked up by its hash: how long that takes says nothing about the text
	// of any token. The id is compared all the same, so that a mix-up in the
	// store can't give one caller another's scope.
	t, ok, err := c.tokens.Check(c.r.Context(), token.HashOf(text))
	if err != nil {
		return token.Token{}, err // a good token isn't a bad one while the database can't be read
	}
	if !ok || subtle.ConstantTimeCompare([]byte(t.ID), []byte(id)) != 1 {
		return token.Token{}, unauthorized
	}
	c.token = t.ID
	return t, nil
}

// allowOperator lets root in, and masterd's own user where its configuration
// says that it is a lab.
func (c *call) allowOperator() error {
	p := c.peer
	if p.unix && p.known && (p.uid == 0 || c.lab && p.uid == c.ownUID) {
		return nil
	}
	return problem.New(problem.Forbidden, "%s is for root on the master's own host", c.path).
		WithHint("run the command as root")
}
