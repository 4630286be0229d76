package main

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"rsc.io/qr"

	"holocast/internal/connect"
	"holocast/internal/pairing"
)

func pairCommand() *cobra.Command {
	var target connect.Target
	var relay string
	c := &cobra.Command{
		Use:   "pair URL",
		Short: "Show a QR code for joining a session with a headset",
		Long: `Stores the session's address, with token and certificate hash, at the relay and prints a link to it,
short enough for the QR codes that headsets read. The link is valid for ten minutes and for any number
of headsets. The relay sees the address only encrypted; the key is in the link.

Run it on the relay's machine, or with --relay and the address of the relay's admin setting. Headsets
need the relay's HTTP server (--http).`,
		Example: `  holocast pair moqt://192.168.1.7:4443/demo --token @viewer.token`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			target.URL = args[0]
			ctx, cancel := context.WithTimeout(cmd.Context(), 10*time.Second)
			defer cancel()
			return pair(ctx, cmd.OutOrStdout(), target, relay)
		},
	}
	c.Flags().StringVar(&relay, "relay", "",
		"HTTP address of the relay that stores the code (default localhost, with the URL's port)")
	c.Flags().StringVar(&target.Token, "token", "", connect.TokenUsage)
	c.Flags().StringVar(&target.CertificateHash, "certificate-hash", "",
		"SHA-256 of the relay's certificate in hex (default for a relay without a name: asked of the relay)")
	return c
}

func pair(ctx context.Context, stdout io.Writer, t connect.Target, relay string) error {
	u, err := url.Parse(t.Address())
	if err != nil {
		return connect.URLError(t.URL, err)
	}
	port := cmp.Or(u.Port(), "443")
	relay = cmp.Or(strings.TrimPrefix(relay, "http://"), net.JoinHostPort("localhost", port))
	host := u.Hostname()
	if ip, err := netip.ParseAddr(host); host == "localhost" || err == nil && ip.IsLoopback() {
		if host, err = ownAddress(); err != nil {
			return err
		}
	}
	host = net.JoinHostPort(host, port)
	if _, err := netip.ParseAddrPort(host); err == nil && t.CertificateHash == "" {
		// Certificate authorities certify names, but the link contains an IP address, so the
		// headset needs the hash of this certificate.
		hash, err := connect.AskHash(ctx, &url.URL{Host: net.JoinHostPort("localhost", port)})
		if err != nil {
			return fmt.Errorf("ask the relay for its certificate's hash (or set --certificate-hash): %w", err)
		}
		t.CertificateHash = hex.EncodeToString(hash[:])
	}
	address, err := t.ViewerAddress(host)
	if err != nil {
		return err
	}
	path, err := pairing.Deposit(ctx, "http://"+relay, address)
	if err != nil {
		return err
	}
	link := "http://" + host + path
	if got, err := pairing.Resolve(ctx, link); err != nil {
		return fmt.Errorf("headsets cannot use the link (is the relay running with --http :%s?): %w", port, err)
	} else if got != address {
		return errors.New("another relay answered at " + host)
	}
	code, err := qr.Encode(link, qr.M)
	if err != nil {
		return err
	}
	draw(stdout, code)
	_, err = fmt.Fprintf(stdout, "%s\nvalid for %.0f minutes\n", link, pairing.Lifetime.Minutes())
	return err
}

// ownAddress returns the address that this machine uses towards other networks. It sends no
// packets.
func ownAddress() (string, error) {
	c, err := net.Dial("udp", "192.0.2.1:9")
	if err != nil {
		return "", fmt.Errorf("a headset cannot reach localhost, and this machine has no other address: %w", err)
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).IP.String(), nil
}

// quiet is the width of a QR code's margin in modules. The standard requires four, but scanners
// manage with two.
const quiet = 2

// draw prints a QR code, two rows of modules per line. It prints dark on light even in dark
// terminals.
func draw(w io.Writer, code *qr.Code) {
	const cells = "█▄▀ "
	dark := func(x, y int) int {
		if code.Black(x, y) {
			return 1
		}
		return 0
	}
	for y := -quiet; y < code.Size+quiet; y += 2 {
		for x := -quiet; x < code.Size+quiet; x++ {
			fmt.Fprint(w, string([]rune(cells)[dark(x, y)+2*dark(x, y+1)]))
		}
		fmt.Fprintln(w)
	}
}
