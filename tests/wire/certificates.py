"""certificates.py: authorities and certificates for the TLS tests, made by openssl(1) at test time, good, expired or revoked."""
import datetime
import pathlib
import subprocess

CONFIG = """
[ca]
default_ca = it
[it]
dir = {folder}
database = $dir/index.txt
new_certs_dir = $dir
serial = $dir/serial
crlnumber = $dir/crlnumber
certificate = $dir/ca.pem
private_key = $dir/ca.key
default_md = sha256
default_crl_days = 30
policy = any
unique_subject = no
copy_extensions = none
[any]
commonName = supplied
[req]
distinguished_name = dn
[dn]
"""


def openssl(*arguments, **kw):
    done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, **kw)
    assert done.returncode == 0, done.stderr
    return done.stdout


def stamp(days):
    return (datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=days)).strftime("%y%m%d%H%M%SZ")


class Authority:
    """A CA in a folder of its own. `ca` is its certificate."""

    def __init__(self, folder, name="test authority"):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True)
        (self.folder / "index.txt").write_text("")
        (self.folder / "serial").write_text("1000\n")
        (self.folder / "crlnumber").write_text("01\n")
        (self.folder / "ca.cnf").write_text(CONFIG.format(folder=self.folder))
        self.ca = self.folder / "ca.pem"
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout",
                self.folder / "ca.key", "-out", self.ca, "-days", "3650", "-subj", f"/CN={name}", "-addext",
                "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign,cRLSign")

    def issue(self, name, sans, starts=-1, ends=365, usage="serverAuth", algorithm=("ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")):
        """(certificate, key) as PEM files. `sans`: "DNS:a,URI:b"; times in days from now."""
        cert, key, csr, ext = (self.folder / f"{name}.{end}" for end in ("pem", "key", "csr", "ext"))
        ext.write_text(f"subjectAltName={sans}\nextendedKeyUsage={usage}\nbasicConstraints=CA:FALSE\n")
        openssl("req", "-new", "-newkey", *algorithm, "-nodes", "-keyout", key, "-out", csr, "-subj", f"/CN={name}")
        openssl("ca", "-batch", "-config", self.folder / "ca.cnf", "-startdate", stamp(starts), "-enddate", stamp(ends), "-extfile",
                ext, "-in", csr, "-out", cert, "-notext")
        return cert, key

    def revoke(self, cert):
        openssl("ca", "-config", self.folder / "ca.cnf", "-revoke", cert)

    def crl(self):
        path = self.folder / "crl.pem"
        openssl("ca", "-config", self.folder / "ca.cnf", "-gencrl", "-out", path)
        return path
