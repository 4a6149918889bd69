package lab

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"gopkg.in/yaml.v3"
)

// Where things lie in a lab's folder.

func (l *Lab) path(elements ...string) string {
	return filepath.Join(append([]string{l.Dir}, elements...)...)
}

// MasterConfigDir is what Salt's programs take as -c.
func (l *Lab) MasterConfigDir() string { return l.path("conf") }

// MasterConfigPath is the master's configuration file.
func (l *Lab) MasterConfigPath() string { return l.path("conf", "master") }

// SockDir holds the master's sockets, master_event_pub.ipc among them.
func (l *Lab) SockDir() string { return l.path("master", "sock") }

// CacheDir is the master's cachedir: job cache and key files.
func (l *Lab) CacheDir() string { return l.path("master", "cache") }

// PKIDir is the master's pki_dir.
func (l *Lab) PKIDir() string { return l.path("master", "pki") }

// RootsDir is the one file root of environment base; _modules in it is synced to minions.
func (l *Lab) RootsDir() string { return l.path("roots") }

// PillarDir is the one pillar root of environment base. It starts with an empty top.sls.
func (l *Lab) PillarDir() string { return l.path("pillar") }

// RunnersDir holds the master's own runners.
func (l *Lab) RunnersDir() string { return l.path("master", "runners") }

// LogDir holds a .log and a .out for each part.
func (l *Lab) LogDir() string { return l.path("log") }

// LogPath is the log of a Salt part: "master", "minion-1", "api".
func (l *Lab) LogPath(part string) string { return filepath.Join(l.LogDir(), part+".log") }

// OutPath is what a part printed; masterd logs there.
func (l *Lab) OutPath(part string) string { return filepath.Join(l.LogDir(), part+".out") }

// KeyFile is the key that the master makes for masterd's login. A master start remakes it.
func (l *Lab) KeyFile() string { return filepath.Join(l.CacheDir(), "."+masterdUser+"_key") }

// VenvBin is the path of a program of the lab's venv: "salt", "salt-run", "python".
func (l *Lab) VenvBin(name string) string { return filepath.Join(l.Venv, "bin", name) }

// APIURL is where salt-api answers, without TLS.
func (l *Lab) APIURL() string { return fmt.Sprintf("http://%s:%d", loopback, l.Ports.API) }

// APIUser is the name that salt-api takes with APISecret and eauth "sharedsecret".
const APIUser = "labapi"

// MinionDir says where one minion keeps what is its own.
type MinionDir struct {
	ID     string
	Root   string // all of the below lies in it
	Config string // the folder with its configuration, -c of salt-call
	Cache  string // cachedir
	PKI    string // pki_dir
	State  string // oduflow.state_dir
	Run    string // oduflow.run_dir: the default is below /run, where a lab must leave nothing
	Lib    string // oduflow.lib_dir
	Etc    string // oduflow.etc_dir
	Tmp    string // made for states to write to
	Log    string
}

// MinionDir gives the folders of minion i, counted from 1.
func (l *Lab) MinionDir(i int) MinionDir { return l.minionDir(l.Minions[i-1], l.Minions[i-1]) }

// minionDir gives the folders of a part that is a minion with this ID.
func (l *Lab) minionDir(part, id string) MinionDir {
	root := l.path(part)
	in := func(name string) string { return filepath.Join(root, name) }
	return MinionDir{
		ID: id, Root: root, Config: in("conf"), Cache: in("cache"), PKI: in("pki"), State: in("state"),
		Run: in("run"), Lib: in("lib"), Etc: in("etc"), Tmp: in("tmp"), Log: l.LogPath(part),
	}
}

// lay makes the folders, keys and configurations. Nothing runs yet.
func (l *Lab) lay(o Options) error {
	top, master, masterd := l.Caller, l.Master, l.Masterd
	folders := []struct {
		path  string
		mode  fs.FileMode
		owner Account
	}{
		{"conf", 0o755, top}, {"roots", 0o755, top}, {"pillar", 0o755, top}, {"bin", 0o755, top},
		{"roots/_modules", 0o755, top}, {"home", 0o755, top},
		{"home/" + top.Name, 0o700, top}, {"home/" + master.Name, 0o700, master}, {"home/" + masterd.Name, 0o700, masterd},
		// Three users log here. The files are made beforehand: in a folder where all of them may
		// create, fs.protected_regular would keep root from opening the others' files.
		{"log", 0o755, top},
		{"master", 0o755, master}, {"master/pki", 0o700, master}, {"master/pki/minions", 0o755, master},
		{"master/cache", 0o750, master}, {"master/sock", 0o755, master}, {"master/run", 0o755, master},
		{"master/runners", 0o755, top}, {"master/extmods", 0o755, top},
		{"masterd", 0o700, masterd}, {"tls", 0o755, top},
		{"run", 0o750, masterd}, // masterd's group is the master's, whose runners must get in
	}
	for _, f := range folders {
		if err := l.mkdir(l.path(f.path), f.mode, f.owner); err != nil {
			return err
		}
	}
	for _, part := range []string{"master", "api"} {
		if err := l.write(l.LogPath(part), nil, 0o640, master); err != nil {
			return err
		}
	}
	if err := l.write(l.path("pillar", "top.sls"), []byte("base: {}\n"), 0o644, top); err != nil {
		return err
	}
	if err := errors.Join(
		l.copyPython("_modules", l.path("roots", "_modules"), top),
		l.copyPython("_runners", l.RunnersDir(), top),
	); err != nil {
		return err
	}
	secret := make([]byte, 16)
	if _, err := rand.Read(secret); err != nil {
		return err
	}
	l.APISecret = hex.EncodeToString(secret)
	// 0640: the secret of salt-api's login is in it, and masterd, of the master's group, reads it.
	if err := l.writeYAML(l.MasterConfigPath(), merge(l.masterConfig(), o.MasterConf), 0o640, Account{UID: top.UID, GID: master.GID}); err != nil {
		return err
	}
	for i := range l.Minions {
		if err := l.layMinion(i+1, o); err != nil {
			return err
		}
	}
	if l.NoMasterd {
		return nil
	}
	return l.layMasterd(o.Masterd)
}

func (l *Lab) masterConfig() map[string]any {
	c := map[string]any{
		"interface":           loopback,
		"publish_port":        l.Ports.Publish,
		"ret_port":            l.Ports.Ret,
		"user":                l.Master.Name,
		"root_dir":            l.Dir, // Salt puts it before every path that is not below it
		"pki_dir":             l.PKIDir(),
		"cachedir":            l.CacheDir(),
		"sock_dir":            l.SockDir(),
		"pidfile":             l.path("master", "run", "master.pid"),
		"token_dir":           l.path("master", "cache", "tokens"),
		"extension_modules":   l.path("master", "extmods"),
		"runner_dirs":         []any{l.RunnersDir()},
		"file_roots":          map[string]any{"base": []any{l.RootsDir()}},
		"pillar_roots":        map[string]any{"base": []any{l.PillarDir()}},
		"log_file":            l.LogPath("master"),
		"log_level_logfile":   "info", // what leaks at info must be seen by the tests
		"worker_threads":      3,
		"ipv6":                false,
		"client_acl_verify":   l.Root,
		"publisher_acl":       map[string]any{masterdUser: []any{"oduflow.*", "saltutil.refresh_pillar", "saltutil.find_job", "test.ping"}},
		"oduflow.socket":      l.MasterdSocket(),
		"enable_gpu_grains":   false,
		"enable_fqdns_grains": false,
	}
	if !l.NoAPI {
		c["sharedsecret"] = l.APISecret
		c["external_auth"] = map[string]any{"sharedsecret": map[string]any{APIUser: []any{".*", "@runner", "@wheel", "@jobs"}}}
		c["netapi_enable_clients"] = []any{"local", "local_async", "runner", "runner_async", "wheel"}
		c["rest_cherrypy"] = map[string]any{"host": loopback, "port": l.Ports.API, "disable_ssl": true}
		c["api_logfile"] = l.LogPath("api")
		c["api_pidfile"] = l.path("master", "run", "api.pid")
	}
	return c
}

func (l *Lab) layMinion(i int, o Options) error {
	m, top := l.MinionDir(i), l.Caller
	if err := l.mkdir(m.Root, 0o755, top); err != nil {
		return err
	}
	for path, mode := range map[string]fs.FileMode{
		m.Config: 0o755, m.Cache: 0o755, m.PKI: 0o700, m.State: 0o700, m.Run: 0o700, m.Lib: 0o755, m.Etc: 0o755, m.Tmp: 0o755,
		filepath.Join(m.Root, "sock"): 0o755,
	} {
		if err := l.mkdir(path, mode, top); err != nil {
			return err
		}
	}
	private, public, err := saltKeyPair()
	if err != nil {
		return err
	}
	if err := errors.Join(
		l.write(filepath.Join(m.PKI, "minion.pem"), private, 0o400, top),
		l.write(filepath.Join(m.PKI, "minion.pub"), public, 0o644, top),
		l.write(filepath.Join(l.PKIDir(), "minions", m.ID), public, 0o644, l.Master), // accepted
		// What a sync would have left, so that no lab waits for one. The file server offers the
		// same files, without which Salt would delete them again.
		l.copyPython("_modules", filepath.Join(m.Cache, "extmods", "modules"), top),
		l.copyPython("_modules", filepath.Join(m.Cache, "files", "base", "_modules"), top),
	); err != nil {
		return err
	}
	conf := merge(merge(l.minionConfig(m), o.MinionConf), o.PerMinion[m.ID])
	return errors.Join(
		l.writeYAML(filepath.Join(m.Config, "minion"), conf, 0o644, top),
		l.write(m.Log, nil, 0o640, top),
	)
}

func (l *Lab) minionConfig(m MinionDir) map[string]any {
	c := map[string]any{
		"id":                   m.ID,
		"master":               loopback,
		"master_port":          l.Ports.Ret,
		"publish_port":         l.Ports.Publish,
		"user":                 l.Caller.Name,
		"root_dir":             l.Dir,
		"pki_dir":              m.PKI,
		"cachedir":             m.Cache,
		"extension_modules":    filepath.Join(m.Cache, "extmods"),
		"sock_dir":             filepath.Join(m.Root, "sock"),
		"pidfile":              filepath.Join(m.Root, "minion.pid"),
		"log_file":             m.Log,
		"log_level_logfile":    "info", // StartMinion waits for a line of this level
		"ipv6":                 false,
		"random_startup_delay": 0,
		"acceptance_wait_time": 1,
		"auth_timeout":         10,
		"recon_default":        100, // a restarted master is found again at once
		"recon_max":            1000,
		"recon_randomize":      false,
		"mine_enabled":         false,
		"enable_gpu_grains":    false,
		"enable_fqdns_grains":  false,
		"oduflow.state_dir":    m.State,
		"oduflow.run_dir":      m.Run,
		"oduflow.lib_dir":      m.Lib,
		"oduflow.etc_dir":      m.Etc,
	}
	if !l.Root {
		c["oduflow.allow_unprivileged"] = true
	}
	return c
}

// copyPython copies the project's modules of one kind. A checkout that has none yet is no error.
func (l *Lab) copyPython(kind, to string, owner Account) error {
	files, err := filepath.Glob(filepath.Join(l.Repo, "salt", kind, "*.py"))
	if err != nil || len(files) == 0 {
		return err
	}
	if err := l.mkdir(to, 0o755, owner); err != nil {
		return err
	}
	for _, file := range files {
		if name := filepath.Base(file); !strings.HasPrefix(name, "test_") && name != "conftest.py" {
			body, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			if err := l.write(filepath.Join(to, name), body, 0o644, owner); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *Lab) mkdir(path string, mode fs.FileMode, owner Account) error {
	if err := os.MkdirAll(path, 0o755); err != nil { // the mode follows
		return err
	}
	if err := os.Chmod(path, mode); err != nil { // in spite of the umask
		return err
	}
	return l.give(path, owner)
}

func (l *Lab) write(path string, body []byte, mode fs.FileMode, owner Account) error {
	if err := os.WriteFile(path, body, mode); err != nil {
		return err
	}
	if err := os.Chmod(path, mode); err != nil {
		return err
	}
	return l.give(path, owner)
}

func (l *Lab) writeYAML(path string, value map[string]any, mode fs.FileMode, owner Account) error {
	body, err := yaml.Marshal(value)
	if err != nil {
		return err
	}
	return l.write(path, body, mode, owner)
}

func (l *Lab) give(path string, owner Account) error {
	if !l.Root {
		return nil
	}
	return os.Lchown(path, owner.UID, owner.GID)
}

// merge lays over onto base: a mapping is merged key by key, anything else replaces what was there.
func merge(base, over map[string]any) map[string]any {
	merged := maps.Clone(base)
	if merged == nil {
		merged = make(map[string]any)
	}
	for key, value := range over {
		below, isMap := merged[key].(map[string]any)
		above, overMap := value.(map[string]any)
		if isMap && overMap {
			merged[key] = merge(below, above)
			continue
		}
		merged[key] = value
	}
	return merged
}
