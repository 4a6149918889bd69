// Package manifest is the signed list of what may run as an executor on a
// minion: each file with its size and SHA-256. A minion pins the public key;
// the private key signs where releases are built. It is used for a release of
// fixed roles as well, with another key.
//
// On disk it is two files: manifest.json, and manifest.sig, the base64 of an
// ed25519 signature over a domain string and the exact bytes of the first.
package manifest

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/oduflow/oduflow-salt/internal/problem"
)

// The files' names, in one folder with what they list.
const (
	FileName      = "manifest.json"
	SignatureName = "manifest.sig"
)

// FormatVersion is the version of manifest.json.
const FormatVersion = 1

const (
	domain  = "oduflow-salt manifest v1\x00"
	maxFile = 1 << 20
)

// Codes of this package. They appear on the machine where the manifest is.
const (
	Missing problem.Code = "manifest_missing" // no manifest, or no file that it lists
	Invalid problem.Code = "manifest_invalid" // not signed by the pinned key, or not in form
	Differs problem.Code = "manifest_differs" // a file isn't the one that was signed
)

// Manifest lists the files of a folder.
type Manifest struct {
	Version int    `json:"version"` // FormatVersion
	Release string `json:"release"` // version of the programs
	Files   []File `json:"files"`   // by name
}

// File is one listed file. Name is relative to the manifest's folder, with
// slashes.
type File struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"` // lower-case hex
}

// Sum gives the digest in bytes.
func (f File) Sum() []byte {
	sum, err := hex.DecodeString(f.SHA256)
	if err != nil || len(sum) != sha256.Size {
		return nil
	}
	return sum
}

// Find gives the entry of a name.
func (m *Manifest) Find(name string) (File, error) {
	for _, f := range m.Files {
		if f.Name == name {
			return f, nil
		}
	}
	return File{}, problem.New(Missing, "the signed manifest doesn't list %s", name)
}

// Build lists the named files of a folder.
func Build(dir, release string, names ...string) (*Manifest, error) {
	m := &Manifest{Version: FormatVersion, Release: release}
	for _, name := range slices.Sorted(slices.Values(names)) {
		sum, size, err := hashFile(filepath.Join(dir, filepath.FromSlash(name)))
		if err != nil {
			return nil, err
		}
		m.Files = append(m.Files, File{Name: name, Size: size, SHA256: hex.EncodeToString(sum)})
	}
	return m, m.check()
}

// Sum gives the SHA-256 of a file.
func Sum(path string) ([]byte, error) {
	sum, _, err := hashFile(path)
	return sum, err
}

func hashFile(path string) (sum []byte, size int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, problem.Wrap(Missing, err, "%s can't be read", path)
	}
	defer func() { _ = f.Close() }()
	hash := sha256.New()
	if size, err = io.Copy(hash, f); err != nil {
		return nil, 0, problem.Wrap(Missing, err, "%s can't be read", path)
	}
	return hash.Sum(nil), size, nil
}

// Sign gives the contents of manifest.json and manifest.sig.
func Sign(m *Manifest, key ed25519.PrivateKey) (raw, signature []byte, err error) {
	if err := m.check(); err != nil {
		return nil, nil, err
	}
	raw, err = json.MarshalIndent(m, "", "  ")
	if err != nil {
		return nil, nil, problem.Wrap(problem.Internal, err, "a manifest can't be encoded")
	}
	raw = append(raw, '\n')
	sig := ed25519.Sign(key, append([]byte(domain), raw...))
	return raw, append([]byte(base64.StdEncoding.EncodeToString(sig)), '\n'), nil
}

// Verify checks the signature before it reads anything, and refuses unknown
// fields and names that lead out of the folder.
func Verify(raw, signature []byte, pinned ed25519.PublicKey) (*Manifest, error) {
	sig, err := base64.StdEncoding.DecodeString(string(bytes.TrimSpace(signature)))
	if err != nil || len(pinned) != ed25519.PublicKeySize || !ed25519.Verify(pinned, append([]byte(domain), raw...), sig) {
		return nil, problem.New(Invalid, "the manifest isn't signed by the pinned key")
	}
	var m Manifest
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&m); err != nil {
		return nil, problem.Wrap(Invalid, err, "the manifest can't be read")
	}
	return &m, m.check()
}

func (m *Manifest) check() error {
	if m.Version != FormatVersion {
		return problem.New(Invalid, "the manifest has version %d, this program knows %d", m.Version, FormatVersion)
	}
	seen := make(map[string]bool, len(m.Files))
	for _, f := range m.Files {
		if f.Name == "" || !filepath.IsLocal(f.Name) || path.Clean(f.Name) != f.Name || strings.ContainsAny(f.Name, "\\\x00") {
			return problem.New(Invalid, "the manifest lists a name that leads out of its folder")
		}
		if seen[f.Name] {
			return problem.New(Invalid, "the manifest lists %s twice", f.Name)
		}
		seen[f.Name] = true
		if f.Sum() == nil || f.Size < 0 || strings.ToLower(f.SHA256) != f.SHA256 {
			return problem.New(Invalid, "the manifest has no digest of %s", f.Name)
		}
	}
	return nil
}

// Load reads and verifies the manifest of a folder.
func Load(dir string, pinned ed25519.PublicKey) (*Manifest, error) {
	raw, err := readFile(filepath.Join(dir, FileName))
	if err != nil {
		return nil, err
	}
	sig, err := readFile(filepath.Join(dir, SignatureName))
	if err != nil {
		return nil, err
	}
	return Verify(raw, sig, pinned)
}

func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, problem.Wrap(Missing, err, "%s can't be read", name)
	}
	defer func() { _ = f.Close() }()
	raw, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, problem.Wrap(Missing, err, "%s can't be read", name)
	}
	if len(raw) > maxFile {
		return nil, problem.New(Invalid, "%s is too large", name)
	}
	return raw, nil
}

// Write builds, signs and writes the manifest of a folder. An existing one is
// replaced.
func Write(dir, release string, key ed25519.PrivateKey, names ...string) error {
	m, err := Build(dir, release, names...)
	if err != nil {
		return err
	}
	raw, sig, err := Sign(m, key)
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{FileName: raw, SignatureName: sig} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return problem.Wrap(Missing, err, "%s can't be written", name)
		}
	}
	return nil
}
