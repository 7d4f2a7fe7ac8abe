/* SPDX-License-Identifier: Apache-2.0
 *
 * Man pages and shell completion, from the tables that parsing and --help come from. The build writes them with `ebb
 * help --man` and `ebb help --completion`, so they always match the program.
 */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

/* Options whose values are names that the library lists. */
typedef const char *name_fn(size_t i, const char **about_out);
static const struct {
    const char *option;
    name_fn *name;
} lists[] = {
    {"--backend", ebb_backend_name},     {"--policy", ebb_policy_name},       {"--algorithms", ebb_algorithms_name},
    {"--solver", ebb_place_solver_name}, {"--format", ebb_trace_format_name},
};

static name_fn *list_of(const ebb_cli_option *option) {
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        if (strcmp(lists[i].option, option->name) == 0) { return lists[i].name; }
    }
    return NULL;
}

/* Whether its first argument may be a network's name. */
static bool takes_network(const ebb_cli_command *command) {
    return strstr(command->arguments, "NET") != NULL;
}

/* Print the names with a blank after each; a family (resnet:N) up to its colon. */
static void print_names(name_fn *name) {
    const char *text = NULL;
    for (size_t i = 0; (text = name(i, NULL)) != NULL; i++) {
        const size_t n = strcspn(text, ":");
        printf("%.*s%s ", (int)n, text, text[n] == ':' ? ":" : "");
    }
}

/* ---- man --------------------------------------------------------------------------------------- */

static void man_character(char c) {
    switch (c) {
    case '\\': printf("\\e"); break;
    case '-': printf("\\-"); break;
    case '\'': printf("\\(aq"); break;
    case '`': printf("\\(ga"); break;
    case '^': printf("\\(ha"); break;
    case '~': printf("\\(ti"); break;
    default: putchar(c);
    }
}

/* Print text for man. A dot or a quote at the beginning of a line would be a command there, so it is marked. Unless
 * keeps_blanks, each run of blanks becomes one. */
static void man_text(const char *text, bool keeps_blanks) {
    bool begins = true;
    for (const char *c = text; *c != '\0'; c++) {
        if (!keeps_blanks && (*c == ' ' || *c == '\n')) {
            c += strspn(c, " \n") - 1;
            putchar(' ');
            continue;
        }
        if (begins && (*c == '.' || *c == '\'')) { printf("\\&"); }
        man_character(*c);
        begins = *c == '\n';
    }
}

static void man_begin(const char *title, const char *name, const char *about) {
    printf(".\\\" Made by ebb help --man.\n.TH %s 1 \"\" \"ebb %s\" \"ebb\"\n.SH NAME\n", title, ebb_version());
    man_text(name, false);
    printf(" \\- ");
    man_text(about, false);
    printf("\n.SH SYNOPSIS\n");
}

static void man_options(const ebb_cli_command *command) {
    printf(".SH OPTIONS\n");
    for (size_t i = 0; i < command->n_options; i++) {
        const ebb_cli_option *option = &command->options[i];
        printf(".TP\n\\fB");
        man_text(option->name, false);
        printf("\\fR");
        if (option->value != NULL) {
            printf(" \\fI");
            man_text(option->value, false);
            printf("\\fR");
        }
        printf("\n");
        man_text(option->help, false);
        printf("\n");
    }
    printf(".TP\n\\fB\\-\\-help\\fR\nsay all this\n");
}

/* Print what --help prints below the options, line by line. */
static void man_more(const ebb_cli_command *command) {
    char *text = NULL;
    size_t n = 0;
    FILE *out = command->more_help != NULL ? open_memstream(&text, &n) : NULL;
    if (out == NULL) { return; }
    command->more_help(out);
    if (fclose(out) == 0 && text != NULL) {
        printf(".SH DETAILS\n.nf\n");
        man_text(text + strspn(text, "\n"), true);
        printf(".fi\n");
    }
    free(text);
}

static void man_end(void) {
    printf(".SH EXIT STATUS\n0 done, 1 an answer that is no (it does not fit), 2 wrong command line, 3 bad input,\n"
           "4 input or output failed, 5 no such device; 128 and a signal\\(aqs number after that signal\n");
    printf(".SH ENVIRONMENT\n.TP\nTMPDIR\nThe folder for temporary files.\n.TP\nEBB_PROGRESS_S\n"
           "Long work says how far it is on standard error: on a terminal in one line, elsewhere in a line every two\n"
           "seconds, after a minute less often. A line every this many seconds instead; 0 for none.\n");
    printf(".SH SEE ALSO\n.BR ebb (1)");
    const ebb_cli_command *command = NULL;
    for (size_t i = 0; (command = ebb__cli_command(i)) != NULL; i++) { printf(",\n.BR ebb\\-%s (1)", command->name); }
    printf("\n");
}

static void man_overview(void) {
    const ebb_cli_command *command = NULL;
    man_begin("EBB", "ebb", "train neural networks inside a memory budget, and show where memory goes");
    printf("\\fBebb\\fR \\fICOMMAND\\fR ...\n.SH COMMANDS\n");
    for (size_t i = 0; (command = ebb__cli_command(i)) != NULL; i++) {
        printf(".TP\n\\fBebb %s\\fR\n", command->name);
        man_text(command->about, false);
        printf("\n");
    }
    printf(".TP\n\\fBebb help\\fR [\\fICOMMAND\\fR]\nsay what there is\n.TP\n\\fBebb version\\fR\nsay the version\n");
}

void ebb__cli_print_man(const ebb_cli_command *command) {
    char title[32] = "EBB-", name[32];
    if (command == NULL) {
        man_overview();
    } else {
        snprintf(name, sizeof name, "ebb-%s", command->name);
        for (size_t i = 0; i < sizeof title - 5 && command->name[i] != '\0'; i++) {
            title[4 + i] = (char)(command->name[i] - ('a' - 'A'));
        }
        man_begin(title, name, command->about);
        printf("\\fBebb %s\\fR ", command->name);
        man_text(command->arguments, false);
        printf("\n");
        man_options(command);
        man_more(command);
    }
    man_end();
}

/* ---- bash -------------------------------------------------------------------------------------- */

static void bash_values(const ebb_cli_command *command) {
    printf("        case $prev in\n");
    for (size_t i = 0; i < command->n_options; i++) {
        const ebb_cli_option *option = &command->options[i];
        if (option->kind == EBB_CLI_FLAG) { continue; }
        printf("        %s) ", option->name);
        if (list_of(option) != NULL) {
            printf("words='");
            print_names(list_of(option));
            printf("' ;;\n");
        } else {
            printf("return ;;\n");
        }
    }
    printf("        *)\n            words='");
    for (size_t i = 0; i < command->n_options; i++) { printf("%s ", command->options[i].name); }
    printf("--help'\n");
    if (takes_network(command)) {
        printf("            [[ $current == -* ]] || words='");
        print_names(ebb_zoo_name);
        printf("'\n");
    } else {
        printf("            [[ $current == -* ]] || return\n");
    }
    printf("            ;;\n        esac\n");
}

static void print_commands(void) {
    const ebb_cli_command *command = NULL;
    for (size_t i = 0; (command = ebb__cli_command(i)) != NULL; i++) { printf("%s ", command->name); }
    printf("help version");
}

/* Where there are no words, bash completes file names (-o default). */
static void print_bash(void) {
    const ebb_cli_command *command = NULL;
    printf("# Made by ebb help --completion bash.\n_ebb() {\n    local current=${COMP_WORDS[COMP_CWORD]} "
           "prev=${COMP_WORDS[COMP_CWORD-1]} words=\n    COMPREPLY=()\n    case $COMP_CWORD:${COMP_WORDS[1]} in\n"
           "    1:*) words='");
    print_commands();
    printf("' ;;\n    *:help) words='");
    print_commands();
    printf("' ;;\n");
    for (size_t i = 0; (command = ebb__cli_command(i)) != NULL; i++) {
        printf("    *:%s)\n", command->name);
        bash_values(command);
        printf("        ;;\n");
    }
    printf("    esac\n    COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
           "}\ncomplete -o default -F _ebb ebb\n");
}

/* ---- zsh, fish --------------------------------------------------------------------------------- */

/* Print text for the inside of single quotes; characters that the shell or _arguments would obey are replaced. */
static void quoted(const char *text) {
    static const char obeyed[] = "'[]:\\\n", instead[] = "`(),/ ";
    for (const char *c = text; *c != '\0'; c++) {
        const char *mark = strchr(obeyed, *c);
        putchar(mark != NULL ? instead[mark - obeyed] : *c);
        if (*c == '\n') { c += strspn(c + 1, " "); }
    }
}

static void print_zsh(void) {
    const ebb_cli_command *command = NULL;
    printf("#compdef ebb\n# Made by ebb help --completion zsh.\n_ebb() {\n  local -a commands\n  commands=(");
    for (size_t i = 0; (command = ebb__cli_command(i)) != NULL; i++) {
        printf("'%s:", command->name);
        quoted(command->about);
        printf("' ");
    }
    printf("'help:say what there is' 'version:say the version')\n"
           "  if (( CURRENT == 2 )); then _describe command commands; return; fi\n  case $words[2] in\n");
    for (size_t i = 0; (command = ebb__cli_command(i)) != NULL; i++) {
        printf("  %s)\n    shift words; (( CURRENT-- ))\n    _arguments", command->name);
        for (size_t j = 0; j < command->n_options; j++) {
            const ebb_cli_option *option = &command->options[j];
            printf(" \\\n      '%s[", option->name);
            quoted(option->help);
            printf("]");
            if (option->kind != EBB_CLI_FLAG && list_of(option) != NULL) {
                printf(":name:(");
                print_names(list_of(option));
                printf(")");
            } else if (option->kind != EBB_CLI_FLAG) {
                printf(":value:_files");
            }
            printf("'");
        }
        printf(" \\\n      '--help[say all this]' '*:argument:_files'\n    ;;\n");
    }
    printf("  esac\n}\n_ebb \"$@\"\n");
}

static void print_fish(void) {
    const ebb_cli_command *command = NULL;
    printf("# Made by ebb help --completion fish.\n");
    for (size_t i = 0; (command = ebb__cli_command(i)) != NULL; i++) {
        printf("complete -c ebb -n __fish_use_subcommand -f -a %s -d '", command->name);
        quoted(command->about);
        printf("'\n");
        for (size_t j = 0; j < command->n_options; j++) {
            const ebb_cli_option *option = &command->options[j];
            const bool is_long = strncmp(option->name, "--", 2) == 0;
            printf("complete -c ebb -n '__fish_seen_subcommand_from %s' %s %s", command->name, is_long ? "-l" : "-s",
                   option->name + (is_long ? 2 : 1));
            if (option->kind != EBB_CLI_FLAG) { printf(" -r"); }
            if (option->kind != EBB_CLI_FLAG && list_of(option) != NULL) {
                printf(" -f -a '");
                print_names(list_of(option));
                printf("'");
            }
            printf(" -d '");
            quoted(option->help);
            printf("'\n");
        }
    }
}

bool ebb__cli_print_completion(const char *shell) {
    static const struct {
        const char *shell;
        void (*print)(void);
    } shells[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};
    for (size_t i = 0; i < sizeof shells / sizeof shells[0]; i++) {
        if (strcmp(shells[i].shell, shell) != 0) { continue; }
        shells[i].print();
        return true;
    }
    return false;
}
