package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The users of Salt's packages and of ours, and the group that masterd shares with the master.
const (
	saltUser    = "salt"
	masterdUser = "oduflow"
)

// madeByLab is the comment field of a user that a lab created. It is kept in /etc/passwd itself, so
// that no lost file can make us forget it, or make us remove a user that was there before.
const madeByLab = "oduflow-lab"

const claimsDir = "/var/tmp/oduflow-lab-users"

// Account is a user that a part of the lab runs as.
type Account struct {
	Name   string `json:"name"`
	UID    int    `json:"uid"`
	GID    int    `json:"gid"`
	Groups []int  `json:"groups,omitempty"`
}

// credential is nil where the account is the caller's own: a process without privilege may not even
// set its groups to what they are.
func (a Account) credential() *syscall.Credential {
	if os.Geteuid() != 0 {
		return nil
	}
	c := &syscall.Credential{Uid: uint32(a.UID), Gid: uint32(a.GID)}
	for _, g := range a.Groups {
		c.Groups = append(c.Groups, uint32(g))
	}
	return c
}

// caller is the account of this process.
func caller() (Account, error) {
	u, err := user.Current()
	if err != nil {
		return Account{}, err
	}
	return Account{Name: u.Username, UID: os.Geteuid(), GID: os.Getegid()}, nil
}

// claimAccounts makes the users of a lab run by root and notes that the lab in dir needs them.
func claimAccounts(ctx context.Context, dir string) (master, masterd Account, err error) {
	unlock, err := lockClaims(ctx)
	if err != nil {
		return Account{}, Account{}, err
	}
	defer unlock()
	if err := os.WriteFile(claimPath(dir), []byte(dir), 0o600); err != nil {
		return Account{}, Account{}, err
	}
	if err := ensureUser(ctx, saltUser); err != nil {
		return Account{}, Account{}, err
	}
	if err := ensureUser(ctx, masterdUser, "--groups", saltUser); err != nil {
		return Account{}, Account{}, err
	}
	if master, err = lookup(saltUser); err != nil {
		return Account{}, Account{}, err
	}
	if masterd, err = lookup(masterdUser); err != nil {
		return Account{}, Account{}, err
	}
	// masterd joins the master's bus by group. Its own group comes second, so that its socket gets
	// the group that the master's runners have.
	masterd.Groups = []int{masterd.GID}
	masterd.GID = master.GID
	return master, masterd, nil
}

// releaseAccounts takes the claim back and removes the users with the last claim. It may be repeated.
func releaseAccounts(ctx context.Context, dir string) error {
	if _, err := os.Stat(claimsDir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	unlock, err := lockClaims(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := os.Remove(claimPath(dir)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if claimed() {
		return nil
	}
	var problems []error
	for _, name := range []string{masterdUser, saltUser} { // the member of the other's group first
		if !createdByLab(name) {
			continue
		}
		if out, err := exec.CommandContext(ctx, "userdel", name).CombinedOutput(); err != nil {
			problems = append(problems, fmt.Errorf("userdel %s: %w: %s", name, err, out))
		}
		if _, err := user.LookupGroup(name); err == nil { // where USERGROUPS_ENAB is off
			_ = exec.CommandContext(ctx, "groupdel", name).Run()
		}
	}
	return errors.Join(problems...)
}

func lockClaims(ctx context.Context) (func(), error) {
	if err := os.Mkdir(claimsDir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	if info, err := os.Lstat(claimsDir); err != nil || !info.IsDir() || !ownedBy(claimsDir, 0) {
		return nil, fmt.Errorf("%s is not a folder of root's", claimsDir)
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return lockFile(ctx, filepath.Join(claimsDir, "lock"))
}

func claimPath(dir string) string {
	return filepath.Join(claimsDir, "claim"+strings.ReplaceAll(dir, "/", "+"))
}

// claimed tells whether a lab that is still there needs the users; a claim whose lab is gone is
// removed on the way.
func claimed() bool {
	claims, _ := filepath.Glob(filepath.Join(claimsDir, "claim*"))
	live := false
	for _, claim := range claims {
		dir, err := os.ReadFile(claim)
		if err != nil {
			continue
		}
		if _, err := os.Stat(filepath.Join(string(dir), descriptionFile)); err != nil {
			_ = os.Remove(claim)
			continue
		}
		live = true
	}
	return live
}

func ensureUser(ctx context.Context, name string, more ...string) error {
	if _, err := user.Lookup(name); err == nil {
		return nil
	}
	args := append([]string{"--system", "--user-group", "--no-create-home", "--home-dir", "/nonexistent",
		"--shell", "/usr/sbin/nologin", "--comment", madeByLab}, more...)
	if _, err := user.LookupGroup(name); err == nil {
		// Removing our user later would take the group along, and the group isn't ours.
		return fmt.Errorf("group %s exists without a user of that name: remove it (groupdel %s) or make the user", name, name)
	}
	out, err := exec.CommandContext(ctx, "useradd", append(args, name)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("useradd %s: %w: %s", name, err, out)
	}
	return nil
}

func createdByLab(name string) bool {
	passwd, err := os.ReadFile("/etc/passwd")
	if err != nil {
		return false
	}
	for _, row := range strings.Split(string(passwd), "\n") {
		if f := strings.Split(row, ":"); len(f) == 7 && f[0] == name {
			return f[4] == madeByLab
		}
	}
	return false
}

func lookup(name string) (Account, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return Account{}, err
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return Account{}, err
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		return Account{}, err
	}
	return Account{Name: name, UID: uid, GID: gid}, nil
}
