package main

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"tandem/daemon"
)

func newMigrate(opts *options) *cobra.Command {
	return &cobra.Command{
		Use: "migrate", Short: "Bring the database to this version's schema", Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return opts.withOperator(cmd, func(o *daemon.Operator) error {
				migrations, err := o.Migrations(cmd.Context())
				if err != nil {
					return err
				}
				rows := make([][]string, 0, len(migrations))
				for _, m := range migrations {
					rows = append(rows, []string{fmt.Sprint(m.Version), m.Name, m.State})
				}
				return opts.print(cmd.OutOrStdout(), migrations, []string{"VERSION", "NAME", "STATE"}, rows)
			})
		},
	}
}

var customerHeader = []string{"ID", "NAME", "BALANCE", "HELD", "CURRENCY"}

func customerRow(c daemon.Customer) []string {
	return []string{c.ID, c.Name, c.Balance, c.Held, c.Currency}
}

func newCustomers(opts *options) *cobra.Command {
	cmd := &cobra.Command{Use: "customers", Short: "Customers and their balance"}
	create := &cobra.Command{
		Use: "create NAME", Short: "Create a customer", Args: args(cobra.ExactArgs(1)),
	}
	balance := create.Flags().String("balance", "0", "opening balance, in units of the currency")
	currency := create.Flags().String("currency", "", "ISO 4217 code (default: the configured currency)")
	create.RunE = func(cmd *cobra.Command, names []string) error {
		return opts.withOperator(cmd, func(o *daemon.Operator) error {
			customer, err := o.CreateCustomer(cmd.Context(), names[0], *balance, *currency)
			if err != nil {
				return err
			}
			return opts.print(cmd.OutOrStdout(), customer, customerHeader, [][]string{customerRow(customer)})
		})
	}
	list := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the customers", Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return opts.withOperator(cmd, func(o *daemon.Operator) error {
				customers, err := o.Customers(cmd.Context())
				if err != nil {
					return err
				}
				rows := make([][]string, 0, len(customers))
				for _, c := range customers {
					rows = append(rows, customerRow(c))
				}
				return opts.print(cmd.OutOrStdout(), customers, customerHeader, rows)
			})
		},
	}
	credit := &cobra.Command{
		Use: "credit CUSTOMER_ID AMOUNT --key KEY", Short: "Add to a customer's balance; the same key adds once", Args: args(cobra.ExactArgs(2)),
	}
	key := credit.Flags().String("key", "", "idempotency key of this payment, such as an invoice number")
	note := credit.Flags().String("note", "", "what the payment is for")
	credit.RunE = func(cmd *cobra.Command, positional []string) error {
		if *key == "" {
			return usageError{errors.New("--key is required")}
		}
		return opts.withOperator(cmd, func(o *daemon.Operator) error {
			customer, err := o.Credit(cmd.Context(), positional[0], positional[1], *key, *note)
			if err != nil {
				return err
			}
			return opts.print(cmd.OutOrStdout(), customer, customerHeader, [][]string{customerRow(customer)})
		})
	}
	cmd.AddCommand(create, list, credit)
	return cmd
}

func newKeys(opts *options) *cobra.Command {
	cmd := &cobra.Command{Use: "keys", Short: "API keys of customers"}
	create := &cobra.Command{
		Use: "create CUSTOMER_ID", Short: "Create an API key and print it, once", Args: args(cobra.ExactArgs(1)),
	}
	name := create.Flags().String("name", "cli", "what the key is for")
	application := create.Flags().String("application", "", "application that the key belongs to (default: none)")
	create.RunE = func(cmd *cobra.Command, positional []string) error {
		return opts.withOperator(cmd, func(o *daemon.Operator) error {
			key, err := o.CreateKey(cmd.Context(), positional[0], *application, *name)
			if err != nil {
				return err
			}
			return opts.print(cmd.OutOrStdout(), key, []string{"ID", "NAME", "API KEY (shown once)"}, [][]string{{key.ID, key.Name, key.Secret}})
		})
	}
	list := &cobra.Command{
		Use: "list CUSTOMER_ID", Aliases: []string{"ls"}, Short: "List a customer's keys", Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, positional []string) error {
			return opts.withOperator(cmd, func(o *daemon.Operator) error {
				keys, err := o.Keys(cmd.Context(), positional[0])
				if err != nil {
					return err
				}
				rows := make([][]string, 0, len(keys))
				for _, k := range keys {
					rows = append(rows, []string{k.ID, k.Name, k.Prefix + "…", k.Application, k.State})
				}
				return opts.print(cmd.OutOrStdout(), keys, []string{"ID", "NAME", "PREFIX", "APPLICATION", "STATE"}, rows)
			})
		},
	}
	revoke := &cobra.Command{
		Use: "revoke CUSTOMER_ID KEY_ID", Short: "Revoke a key at once", Args: args(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, positional []string) error {
			return opts.withOperator(cmd, func(o *daemon.Operator) error {
				return o.RevokeKey(cmd.Context(), positional[0], positional[1])
			})
		},
	}
	cmd.AddCommand(create, list, revoke)
	return cmd
}

func newLedger(opts *options) *cobra.Command {
	cmd := &cobra.Command{Use: "ledger", Short: "The ledger of balances"}
	cmd.AddCommand(&cobra.Command{
		Use: "verify", Short: "Check the ledger's invariants; exit 1 when one does not hold", Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return opts.withOperator(cmd, func(o *daemon.Operator) error {
				violations, err := o.VerifyLedger(cmd.Context())
				if err != nil {
					return err
				}
				for _, v := range violations {
					if _, err := fmt.Fprintln(cmd.OutOrStdout(), v); err != nil {
						return err
					}
				}
				if len(violations) > 0 {
					return fmt.Errorf("%d invariants do not hold", len(violations))
				}
				_, err = fmt.Fprintln(cmd.OutOrStdout(), "the ledger holds")
				return err
			})
		},
	}, &cobra.Command{
		Use: "differences", Short: "List calls that were billed other seconds than their switch recorded; nothing is changed", Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return opts.withOperator(cmd, func(o *daemon.Operator) error {
				found, err := o.Differences(cmd.Context())
				if err != nil {
					return err
				}
				rows := make([][]string, 0, len(found))
				for _, d := range found {
					rows = append(rows, []string{d.CallID, strconv.Itoa(d.BilledSeconds), strconv.Itoa(d.CDRSeconds), d.NodeID, d.ChannelID, d.FoundAt.Format(time.RFC3339)})
				}
				return opts.print(cmd.OutOrStdout(), found, []string{"CALL", "BILLED S", "SWITCH S", "NODE", "CHANNEL", "FOUND"}, rows)
			})
		},
	})
	return cmd
}
