package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const stampFile = ".holocast-stamp"

// module is a module to patch.
type module struct {
	path, version string
	tree          string                                      // folder of the patched copy
	hashes        map[string]string                           // SHA-256 of the files that the patch depends on
	added         map[string]string                           // our files and their text
	changed       map[string]func(src []byte) ([]byte, error) // changed files and their changes
}

// modules lists the modules to patch.
var modules = []module{quicGo, webTransport}

var quicGo = module{
	path: "github.com/quic-go/quic-go", version: "v0.64.1", tree: "build/quic-go",
	hashes: quicGoHashes, added: added, changed: changed,
}

// quicGoHashes holds the hashes of the quic-go files that the patch depends on.
var quicGoHashes = parseHashes(`
20fbda42b43cc81a17c7df47219b1e442f7aa13d294d80fd395153da7929fd45  buffer_pool.go
3001576ff830487f85c6fe61b3e83cdbeee21a6a43fcfb724cb9cbdb16773844  conn_id_generator.go
b5ec30125b7565acf32f6eb167181361833bdeacae10965bf015ae90521d26aa  conn_id_manager.go
51f160cdef7aefe52e40fd48d9a71439f643e62cd8a4d561d3c28cec8db2888a  connection.go
4b6a0af4d3bbd0c9090c951bc1cd569af432f7d3143bc57146238200db12475a  crypto_stream.go
fbe89ef1692df3836ad296f6a05c9e502bfc0ff6da9f37de6ba3f72deaf9422b  datagram_queue.go
d780f3beb3ad5e29ae429a77866396374c2c01d8312233383cfc30322ea09031  flow_controller_connection.go
4aed772ebddebda72311b61cbeed8d99316519be096798ac8f9f4f7090cc9787  flow_controller_stream.go
6f22ebac07d86a2666004dc1d000c32ab0edbf435348476549bf960b77ed34df  frame_sorter.go
925ced4e4ae3b69f7762b1d1a994678a464a71ebff4e7a38881a0902f21c53a2  framer.go
87f63b89cc9a0e85287cf71cf516556fe2315d9b9ad11517e1f3605ae20355c1  http3/conn.go
c15056479d707abb4f5f2e018ccae1c484960b7521e3f5581a20f2a24df162fe  http3/frames.go
605412620104879a2f14fc2cf9a95f25bc7989fff5c43bc7dea841a7209db59f  http3/server_conn.go
3faccaaa040a979082a3794db2d86b60eda920803ad52895f5d81d2f624735c6  http3/state_tracking_stream.go
1f55951da1085ab0c53ba0a13abe13155b189f9aca28d73e927baf4205a3ab37  internal/ackhandler/ecn.go
7b43539175ae5e582a34807270b8bb1d730f288fcb34aa6075f674ffe9ebf840  internal/ackhandler/interfaces.go
6c82ed41d917daa84ca4961c8e1a9847b548ad9e80845ac42ee566f89e7aa482  internal/ackhandler/lost_packet_tracker.go
20e0a9728edd98819b4afeff2b7afb3c497b33074ba4687f9093a1980cc94740  internal/ackhandler/packet.go
8d4dddc2f20160bf5be9bb0fc50cbb8fd34d8ae0bc53a054758f7632425df848  internal/ackhandler/packet_number_generator.go
3de3937e85dfa519b197a957cb0e2d948268ed8704762cc2599d0206bc587ab7  internal/ackhandler/sent_packet_handler.go
f13e37d41050bb1d0dbcf1e0d69f21b447262f74446ecf163137ed22fba50933  internal/ackhandler/sent_packet_history.go
c0f041a19496e645775c24d8f8fc80871331b9aed684ed6bd0b1812a517babb7  internal/congestion/interface.go
630855eb5181e4c738b8949503d342ea88f10120bd30cf3f24096e1eaaf925e3  internal/handshake/aead.go
ce8bc028081b0baf41abf91bc64bd8a848947dc044c06e1185a324d1fdd06db1  internal/handshake/cipher_suite.go
8e4b7a53c347f10d7812ae1c31935894b600f77782bead8d9e4bcc2bb85974da  internal/handshake/crypto_setup.go
228413cc31413026c51774ebde0c0b66a00e6e43faeac57e77e3adde51886696  internal/handshake/hkdf.go
2c527ccdc0b38e8edf0ccee9b79ba2bdba1077df5c73d7d0efaadc644a5af52c  internal/handshake/updatable_aead.go
a9957ea88956b8c5139e4a57d7efcdc3a3a7ae703b92774c524bf52eadfdd13d  internal/monotime/time.go
559b10f63a51332b7720a75f249629bc7173b2b5ff220cd654ccbe5049c4f3b5  internal/protocol/params.go
a8da00928e939f35f4ddefb5cfd57f6e2b57f767cd41abea8f75bf73282ee886  internal/protocol/protocol.go
15c1d9d7f0724ce855d24a066b8dd5027bb0d35b840921ce2b14c52a4b3039d8  internal/utils/connstats.go
4007b540adc3819bb26e198c9a21e5821436f9d943d8e3e9fcbb93e04823f451  internal/utils/linkedlist/linkedlist.go
ae71ced5cd15bfb40e8841d9fa6885d33da9141747782efe4194b9444d148113  internal/wire/pool.go
f33ac1725936f91d2d5a2c11d010054c96c988b9310df55bc491e72318cd7e1e  internal/wire/short_header.go
8fdd35e7d417df06b66b0e457c93a0a635dec9565128f4b0bf5dff24d6e81526  internal/wire/stream_frame.go
312dd22fd74f124588a8537e24c6fa1283b34377acf7cd127afb6b2d0de7c93d  mtu_discoverer.go
8688472d72e039d271d6d9fca6a5cf15ab01da43a454365eb8e3ba504cb05ae7  packet_packer.go
b14f055c755c167619bb44de77d80c5f76628c07cebda4e761809d0aa6b75866  path_manager.go
f9db2677411dcf00dbbe4366a4bcf75900d755e9e98cd657f661ecc8a070de7b  receive_stream.go
cbaf159fdbe5dbf50a8c05a49f85267fdc070136256de402191bd14e27400db0  retransmission_queue.go
69d07d84541928e275fc8738bb68a40eed526aca8ba70e4f0ba53f64a502edd3  send_conn.go
efecf7fa2b7db2e6caf3c5852fb7e0724b19165f63fb0351c7bbbca7d843b067  send_queue.go
5ec5766135d5f695f1dd919302d8011a9ead9deb12dedd8d0b9f54775cef7d85  send_stream.go
223ce3cab68ecc7b72c2ad28e6222dbf94702837cd23891087d1dd55ea6f68b0  streams_map_incoming.go
`)

// parseHashes parses the output of sha256sum, with a hash and a file name in each line.
func parseHashes(lines string) map[string]string {
	hashes := map[string]string{}
	for line := range strings.Lines(lines) {
		if hash, name, found := strings.Cut(strings.TrimSpace(line), "  "); found {
			hashes[name] = hash
		}
	}
	return hashes
}

// checkRequired compares the version in go.mod with the version that the patch supports.
func (m module) checkRequired(root string) error {
	data, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return err
	}
	found := regexp.MustCompile(`(?m)^(?:require)?\s+` + regexp.QuoteMeta(m.path) + ` (v\S+)`).FindSubmatch(data)
	if found == nil {
		return fmt.Errorf("%s does not require %s", filepath.Join(root, "go.mod"), m.path)
	}
	if got := string(found[1]); got != m.version {
		return fmt.Errorf(
			"go.mod requires %s %s; the patch is for %s: review tools/quicpatch for the new version, or remove go.work to build without it",
			m.path,
			got,
			m.version,
		)
	}
	return nil
}

// locate returns the module's folder in the module cache. It downloads the module if needed.
func (m module) locate(root string) (dir string, err error) {
	cmd := exec.Command("go", "mod", "download", "-json", m.path)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOWORK=off")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	var found struct{ Version, Dir, Error string }
	if jsonErr := json.Unmarshal(out, &found); jsonErr != nil && err == nil {
		err = jsonErr
	}
	switch {
	case found.Error != "":
		return "", fmt.Errorf("%s: %s", m.path, found.Error)
	case err != nil:
		return "", fmt.Errorf("go mod download %s: %w", m.path, err)
	case found.Version != m.version:
		return "", fmt.Errorf("the build uses %s %s, not %s", m.path, found.Version, m.version)
	}
	return found.Dir, nil
}

// verify compares the module's files with the hashes.
func (m module) verify(source string) error {
	for _, name := range slices.Sorted(maps.Keys(m.hashes)) {
		data, err := os.ReadFile(filepath.Join(source, filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != m.hashes[name] {
			return fmt.Errorf(
				"%s in %s differs from %s %s: run go clean -modcache if the module cache was changed, or review tools/quicpatch",
				name,
				source,
				m.path,
				m.version,
			)
		}
	}
	return nil
}

// copyTree copies source to dst and adds write permission, which files in the module cache lack.
func copyTree(dst, source string) error {
	return filepath.WalkDir(source, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(source, path)
		if err != nil {
			return err
		}
		to := filepath.Join(dst, rel)
		if d.IsDir() {
			return os.MkdirAll(to, 0o755)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(to, data, 0o644)
	})
}

// writeWork writes go.work. It returns an error if the user has written one.
func writeWork(root string) (changed bool, err error) {
	name := filepath.Join(root, "go.work")
	var replace strings.Builder
	for _, m := range modules {
		fmt.Fprintf(&replace, "replace %s %s => ./%s\n", m.path, m.version, m.tree)
	}
	want := []byte(`// Written by tools/quicpatch. Set GOWORK=off to build with quic-go as published.
go 1.26.0

use .

` + replace.String())
	have, err := os.ReadFile(name)
	switch {
	case err == nil && bytes.Equal(have, want):
		return false, nil
	case err == nil && !bytes.Contains(have, []byte("tools/quicpatch")):
		return false, fmt.Errorf("%s was not written by quicpatch; add to it:\n%s", name, replace.String())
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return false, err
	}
	return true, os.WriteFile(name, want, 0o644)
}
