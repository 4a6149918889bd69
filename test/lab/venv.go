package lab

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// EnvVenvs names the folder for cached venvs, where the default does not suit.
const EnvVenvs = "ODUFLOW_SALT_VENVS"

const venvDone = ".oduflow-complete"

// ensureVenv returns a venv with the release in it, building it on first use.
//
// The name holds a hash of the requirements and of the Python, so a changed pin never meets an old
// venv. A file lock keeps two labs from building the same one; the marker file is written last, so
// that a build that was cut off is seen and done again.
func ensureVenv(ctx context.Context, r release, logf func(string, ...any)) (string, error) {
	python, err := findPython(ctx)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(python + "\n" + strings.Join(r.requirements, "\n")))
	name := r.version() + "-" + hex.EncodeToString(sum[:4])

	// One that root built is as good for anybody else: only root can have changed it.
	if shared := filepath.Join(defaultVenvs(0), name); os.Geteuid() != 0 && complete(shared, 0) {
		return shared, nil
	}
	parent := os.Getenv(EnvVenvs)
	if parent == "" {
		parent = defaultVenvs(os.Geteuid())
	}
	if parent, err = filepath.Abs(parent); err != nil {
		return "", err
	}
	if err := os.MkdirAll(parent, 0o755); err != nil { // users salt and oduflow run Python from here
		return "", err
	}
	if !ownedBy(parent, os.Geteuid()) {
		return "", fmt.Errorf("%s belongs to somebody else; set %s to a folder of your own", parent, EnvVenvs)
	}
	venv := filepath.Join(parent, name)
	if complete(venv, os.Geteuid()) {
		return venv, nil
	}
	unlock, err := lockFile(ctx, venv+".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if complete(venv, os.Geteuid()) { // the one before us built it
		return venv, nil
	}
	logf("building a venv with %s in %s (once)", strings.Join(r.requirements, " "), venv)
	if err := buildVenv(ctx, python, venv, r.requirements); err != nil {
		return "", err
	}
	return venv, nil
}

func defaultVenvs(uid int) string {
	return "/var/tmp/oduflow-salt-venvs-" + strconv.Itoa(uid)
}

func complete(venv string, owner int) bool {
	_, err := os.Stat(filepath.Join(venv, venvDone))
	return err == nil && ownedBy(venv, owner)
}

func ownedBy(path string, uid int) bool {
	info, err := os.Stat(path)
	if err != nil {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == uid
}

func buildVenv(ctx context.Context, python, venv string, requirements []string) error {
	if err := os.RemoveAll(venv); err != nil {
		return err
	}
	logPath := venv + ".log"
	// The umask matters: run by root, other users read these files.
	script := `umask 022; "$1" -m venv "$2" && shift && venv="$1" && shift && exec "$venv/bin/python" -m pip install --disable-pip-version-check --no-input --quiet "$@"`
	args := append([]string{"-c", script, "venv", python, venv}, requirements...)
	out, err := exec.CommandContext(ctx, "/bin/sh", args...).CombinedOutput()
	_ = os.WriteFile(logPath, out, 0o600)
	if err != nil {
		return fmt.Errorf("build the venv for %s (whole output in %s; test/lab/install.sh says what is missing): %w\n%s",
			requirements[0], logPath, err, lastLines(string(out), 15))
	}
	return os.WriteFile(filepath.Join(venv, venvDone), nil, 0o644)
}

// findPython takes the distribution's Python first: run by root, other users must be able to read
// it, so one below root's home (pyenv's, for example) will not do.
func findPython(ctx context.Context) (string, error) {
	candidates := []string{"/usr/bin/python3", "/usr/local/bin/python3"}
	if os.Geteuid() != 0 {
		if onPath, err := exec.LookPath("python3"); err == nil {
			candidates = append(candidates, onPath)
		}
	}
	var reasons []string
	for _, candidate := range candidates {
		resolved, err := filepath.EvalSymlinks(candidate)
		if err != nil {
			continue
		}
		if os.Geteuid() == 0 && !readableByAll(resolved) {
			reasons = append(reasons, candidate+": other users can't read it")
			continue
		}
		out, err := exec.CommandContext(ctx, candidate, "-c", "import venv, ensurepip, sys; assert sys.version_info >= (3, 9), sys.version").CombinedOutput()
		if err == nil {
			return candidate, nil
		}
		reasons = append(reasons, candidate+": "+lastLines(string(out), 1))
	}
	if len(reasons) == 0 {
		return "", errors.New("no Python 3 found; test/lab/install.sh installs what is missing")
	}
	return "", fmt.Errorf("no usable Python 3 with venv (%s); test/lab/install.sh installs what is missing", strings.Join(reasons, "; "))
}

func readableByAll(path string) bool {
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm()&0o005 != 0o005 {
		return false
	}
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil || info.Mode().Perm()&0o001 == 0 {
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
	}
}

// lockFile takes an exclusive lock that ends with this process, and gives it back on unlock.
func lockFile(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	err = Poll(ctx, func() (bool, error) {
		switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
		case err == nil:
			return true, nil
		case errors.Is(err, unix.EWOULDBLOCK), errors.Is(err, unix.EINTR):
			return false, nil
		default:
			return false, err
		}
	})
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { _ = f.Close() }, nil
}

// Venv gives the folder of the kept venv with a Salt line, and makes it where it is missing.
func Venv(ctx context.Context, line string, log io.Writer) (string, error) {
	r, err := findRelease(line)
	if err != nil {
		return "", err
	}
	l := &Lab{log: log}
	return ensureVenv(ctx, r, l.logf)
}
