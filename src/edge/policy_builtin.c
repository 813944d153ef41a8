/* policy_builtin.c: detectors that come with the server: personal data and secrets by their shapes and their check digits.
 *
 *   card         13 to 19 digits of a payment card in groups: an issuer's prefix, a length it has, Luhn's check digit (ISO/IEC 7812)
 *   cn_id        China's resident identity number: 18 characters, a date of birth, ISO 7064 MOD 11-2 (GB 11643)
 *   us_ssn       US social security number, written in groups, of ranges that are given out
 *   phone        E.164 with +, North America's and China's mobile numbers
 *   email        RFC 5321's plain form
 *   secret       API keys and tokens by the shapes their issuers gave them, JSON Web Tokens, private keys in PEM
 *
 * A pattern finds candidates and is written so that it can't run away: every repetition is bounded or cannot give anything back. */
#include <ctype.h>
#include <string.h>

#include "base/size.h"
#include "edge/policy_priv.h"

#define CARD_DIGITS_MAX 19
#define CARD_DIGITS_MIN 13

static bool luhn(const char *digits, size_t n)
{
    unsigned sum = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned d = (unsigned)(digits[n - 1 - i] - '0');
        d = i % 2 ? d * 2 : d;
        sum += d > 9 ? d - 9 : d;
    }
    return sum % 10 == 0;
}

struct issuer {
    unsigned from, to; /* of the first four digits */
    unsigned lengths;  /* a bit each */
};

#define LEN(n) (1u << (n))

/* Issuer identification numbers of the networks that are in use. */
static const struct issuer issuers[] = {
    {4000, 4999, LEN(13) | LEN(16) | LEN(19)},                                         /* Visa */
    {5100, 5599, LEN(16)},                                                             /* Mastercard */
    {2221, 2720, LEN(16)},                                                             /* Mastercard */
    {3400, 3499, LEN(15)},                                                             /* American Express */
    {3700, 3799, LEN(15)},                                                             /* American Express */
    {3000, 3059, LEN(14) | LEN(16) | LEN(19)},                                         /* Diners Club */
    {3600, 3699, LEN(14) | LEN(16) | LEN(19)},                                         /* Diners Club */
    {3800, 3999, LEN(14) | LEN(16) | LEN(19)},                                         /* Diners Club */
    {3528, 3589, LEN(16) | LEN(17) | LEN(18) | LEN(19)},                               /* JCB */
    {6011, 6011, LEN(16) | LEN(19)},                                                   /* Discover */
    {6440, 6599, LEN(16) | LEN(19)},                                                   /* Discover */
    {6200, 6299, LEN(16) | LEN(17) | LEN(18) | LEN(19)},                               /* UnionPay */
    {5000, 5099, LEN(13) | LEN(14) | LEN(15) | LEN(16) | LEN(17) | LEN(18) | LEN(19)}, /* Maestro */
    {5600, 5899, LEN(13) | LEN(14) | LEN(15) | LEN(16) | LEN(17) | LEN(18) | LEN(19)}, /* Maestro */
    {2200, 2204, LEN(16) | LEN(17) | LEN(18) | LEN(19)},                               /* Mir */
};

static bool is_issued(const char *digits, size_t n)
{
    unsigned head = 0;
    for (size_t i = 0; i < 4; i++)
        head = head * 10 + (unsigned)(digits[i] - '0');
    for (size_t i = 0; i < COUNT_OF(issuers); i++)
        if (head >= issuers[i].from && head <= issuers[i].to && issuers[i].lengths & LEN(n))
            return true;
    return false;
}

/* Of several numbers one behind the other, the longest start that is a card: "4111 1111 1111 1111 2 pieces". */
static size_t check_card(const char *text, size_t n)
{
    char digits[CARD_DIGITS_MAX];
    size_t ends[CARD_DIGITS_MAX], have = 0;
    for (size_t i = 0; i < n && have < CARD_DIGITS_MAX; i++)
        if (isdigit((unsigned char)text[i])) {
            ends[have] = i + 1;
            digits[have++] = text[i];
        }
    for (size_t k = have; k >= CARD_DIGITS_MIN; k--) {
        bool whole = ends[k - 1] == n || !isdigit((unsigned char)text[ends[k - 1]]);
        if (whole && is_issued(digits, k) && luhn(digits, k))
            return ends[k - 1];
    }
    return 0;
}

/* GB 11643: the weighted sum of all 18 characters is 1 modulo 11; weights are 2^(17-i) mod 11, X is ten. */
static size_t check_cn_id(const char *text, size_t n)
{
    static const unsigned weights[] = {7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2, 1};
    unsigned sum = 0;
    if (n != COUNT_OF(weights))
        return 0;
    for (size_t i = 0; i < n; i++)
        sum += weights[i] * (isdigit((unsigned char)text[i]) ? (unsigned)(text[i] - '0') : 10u);
    return sum % 11 == 1 ? n : 0;
}

static const struct policy_builtin builtins[] = {
    {"card", "(?<!\\d)\\d(?:[ \\x{A0}.\\x{2010}-\\x{2013}-]?\\d){12,18}(?!\\d)", check_card},
    {"cn_id",
     "(?<![0-9A-Za-z])[1-9]\\d{5}(?:18|19|20)\\d{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\\d|3[01])\\d{3}[\\dXx](?![0-9A-Za-z])",
     check_cn_id},
    {"us_ssn", "(?<![\\d-])(?!000|666|9\\d\\d)\\d{3}([- ])(?!00)\\d{2}\\1(?!0000)\\d{4}(?![\\d-])", NULL},
    {"phone",
     "(?<![\\d+])(?:\\+[1-9](?:[ ().-]{0,2}\\d){7,14}|(?:\\(\\d{3}\\) ?|\\d{3}[-. ])\\d{3}[-. ]\\d{4}|1[3-9]\\d[- ]?\\d{4}[- "
     "]?\\d{4})(?!\\d)",
     NULL},
    {"email", "[A-Za-z0-9._%+'-]{1,64}@(?:[A-Za-z0-9][A-Za-z0-9-]{0,62}\\.){1,8}[A-Za-z]{2,24}", NULL},
    {"secret",
     "(?<![A-Za-z0-9])(?:"
     "sk-[A-Za-z0-9_-]{20,200}+"                                  /* OpenAI, Anthropic and others that followed */
     "|(?:AKIA|ASIA)[0-9A-Z]{16}(?![0-9A-Z])"                     /* AWS */
     "|gh[pousr]_[A-Za-z0-9]{36,255}+|github_pat_\\w{22,255}+"    /* GitHub */
     "|glpat-[\\w-]{20,200}+"                                     /* GitLab */
     "|xox[abeoprs]-[A-Za-z0-9-]{10,250}+"                        /* Slack */
     "|AIza[\\w-]{35}"                                            /* Google */
     "|hf_[A-Za-z0-9]{30,200}+"                                   /* Hugging Face */
     "|[sr]k_(?:live|test)_[A-Za-z0-9]{16,200}+"                  /* Stripe */
     "|inferd_[0-9a-f]{16}_[0-9a-f]{64}"                          /* our own */
     "|eyJ[\\w-]{8,1000}+\\.eyJ[\\w-]{8,2000}+\\.[\\w-]{8,1000}+" /* a signed JSON Web Token */
     ")"
     "|-----BEGIN (?:[A-Z0-9]{1,16} ){0,3}PRIVATE KEY-----"
     "(?:(?:\\s|\\\\[rn])*+[A-Za-z0-9+/=]{16,100}+){0,60}+"
     "(?:(?:\\s|\\\\[rn])*+(?:[A-Za-z0-9+/=]{1,15}+)?(?:\\s|\\\\[rn])*+-----END [A-Z0-9 ]{0,48}PRIVATE KEY-----)?",
     NULL},
};

const struct policy_builtin *policy__builtin(struct str name)
{
    for (size_t i = 0; i < COUNT_OF(builtins); i++)
        if (str_eqz(name, builtins[i].name))
            return &builtins[i];
    return NULL;
}

const char *policy_builtin_name(size_t i)
{
    return i < COUNT_OF(builtins) ? builtins[i].name : NULL;
}
