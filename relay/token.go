package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/spf13/cobra"

	"holocast/internal/config"
	"holocast/internal/connect"
	"holocast/internal/moqt"
	"holocast/internal/service"
	"holocast/relay/auth"
)

// tokenCommand signs tokens with the relay's own key.
func tokenCommand(cfg *Config) *cobra.Command {
	var publish, subscribe []string
	var subject string
	var lasts time.Duration
	c := &cobra.Command{
		Use:   "token",
		Short: "Sign a token for a publisher or viewer",
		Long: `Sign a token for a publisher or viewer.

The token is signed with the first private key or shared secret of --auth-keys, or of auth.keys in
the configuration, and printed to standard output. Its ID, which auth.revoked can revoke, goes to
standard error. Pass it to capture-server and holocast in HOLOCAST_TOKEN or with --token, and to
the web viewer in the address: #token=...

A session name stands for its namespace. A name with a leading slash is a namespace prefix with
fields separated by slashes; / covers everything. Publishing includes subscribing in the same
namespace, and subscribing includes sending receipts.`,
		Example: `  relay token --auth-keys relay.key --publish studio --for 2h
  relay token --config relay.yaml --subscribe studio --subscribe lobby --subject alice
  relay token --auth-keys relay.key --subscribe /`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			claims := auth.Claims{Claims: jwt.Claims{Subject: subject, Issuer: cfg.Auth.Issuer}}
			if cfg.Auth.Audience != "" {
				claims.Audience = jwt.Audience{cfg.Auth.Audience}
			}
			var err error
			if claims.Publish, err = prefixes("--publish", publish); err != nil {
				return err
			}
			if claims.Subscribe, err = prefixes("--subscribe", subscribe); err != nil {
				return err
			}
			switch {
			case len(publish)+len(subscribe) == 0:
				return errors.New("the token would grant nothing; set --publish or --subscribe")
			case lasts <= 0:
				return errors.New("--for must be above 0")
			}
			now := time.Now()
			claims.Expiry = jwt.NewNumericDate(now.Add(lasts))
			key, err := signingKey(cmd.Context(), cfg.Auth.Keys)
			if err != nil {
				return err
			}
			token, id, err := auth.Mint(key, claims, now)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "token %s, until %s\n", id, now.Add(lasts).Format(time.DateTime))
			_, err = fmt.Fprintln(cmd.OutOrStdout(), token)
			return err
		},
	}
	f := c.Flags()
	f.String(config.Flag, "", "the relay's YAML configuration file")
	settings.AddFlags(f, cfg, "auth.keys")
	f.StringArrayVar(&publish, "publish", nil, "session or /namespace/prefix to publish in; repeatable")
	f.StringArrayVar(&subscribe, "subscribe", nil, "session or /namespace/prefix to subscribe to; repeatable")
	f.DurationVar(&lasts, "for", 24*time.Hour, "how long the token is valid")
	f.StringVar(&subject, "subject", "", "identity of the holder, whose sessions share namespaces (default the token)")
	return c
}

// prefixes parses a flag's values, which are session names or namespace prefixes.
func prefixes(flag string, names []string) (list auth.Prefixes, err error) {
	for _, name := range names {
		ns := moqt.Namespace{connect.Root, name}
		if strings.HasPrefix(name, "/") || name == "" {
			if ns, err = auth.ParsePrefix(name); err != nil {
				return nil, fmt.Errorf("%s: %w", flag, err)
			}
		}
		list = append(list, ns)
	}
	return list, nil
}

func signingKey(ctx context.Context, sources []string) (auth.Key, error) {
	if len(sources) == 0 {
		return auth.Key{}, errors.New("no signing key: set --auth-keys, or auth.keys in --config; " +
			"generate one with relay key")
	}
	for _, source := range sources {
		keys, err := auth.ReadKeys(ctx, source)
		if err != nil {
			return auth.Key{}, err
		}
		for _, k := range keys {
			if k.CanSign() {
				return k, nil
			}
		}
	}
	return auth.Key{}, fmt.Errorf("%s: holds only public keys, which cannot sign", strings.Join(sources, ", "))
}

// writeKey writes a new key's file and closes it. On error it removes the file, so that its name is
// free for the next try.
func writeKey(f *os.File, key []byte) error {
	_, err := f.Write(key)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// keyCommand generates keys.
func keyCommand() *cobra.Command {
	var algorithm string
	var public bool
	c := &cobra.Command{
		Use:   "key FILE",
		Short: "Generate a key for signing tokens",
		Long: `Generate a key for signing tokens, as a JSON Web Key in a new file readable by its owner only.

With --public, read FILE and print the public key set for relays that only verify tokens.`,
		Example: `  relay key relay.key
  relay key --public relay.key > public.json`,
		Args: service.Arguments,
		RunE: func(cmd *cobra.Command, args []string) error {
			if public {
				keys, err := auth.ReadKeys(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				b, err := auth.MarshalPublic(keys)
				if err != nil {
					return err
				}
				_, err = cmd.OutOrStdout().Write(b)
				return err
			}
			key, err := auth.NewKey(algorithm)
			if err != nil {
				return err
			}
			b, err := auth.MarshalKey(key)
			if err != nil {
				return err
			}
			f, err := os.OpenFile(args[0], os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
			if errors.Is(err, os.ErrExist) {
				return fmt.Errorf("%s exists, and tokens may depend on its key; choose another name or move it",
					args[0])
			}
			if err != nil {
				return err
			}
			return writeKey(f, b)
		},
	}
	c.Flags().StringVar(&algorithm, "algorithm", "EdDSA",
		"EdDSA, ES256, RS256 or HS256 (a secret shared by issuer and relay)")
	c.Flags().BoolVar(&public, "public", false, "print the public part of FILE")
	return c
}
