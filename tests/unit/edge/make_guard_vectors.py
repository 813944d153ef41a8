"""make_guard_vectors.py: where the numbers of test_guard_stats.c come from: numpy, scipy and scikit-learn (pip install numpy scipy scikit-learn)."""
import numpy as np
from scipy import stats
from sklearn.covariance import LedoitWolf
# the sample: a linear congruential generator that the C test repeats
def lcg(n, seed=1):
    out=[]; x=seed
    for _ in range(n):
        x=(x*1103515245+12345)%2**31
        out.append(x/2**31-0.5)
    return np.array(out)
n,d=80,3
raw=lcg(n*d).reshape(n,d)
X=np.empty((n,d))
X[:,0]=raw[:,0]*4+1
X[:,1]=raw[:,0]*2+raw[:,1]
X[:,2]=raw[:,2]*100
X=X.astype(np.float32).astype(np.float64)
fit,cal=X[0::2],X[1::2]
med=np.median(fit,axis=0); mad=stats.median_abs_deviation(fit,axis=0,scale='normal')
z=lambda r: np.abs(r-med)/mad
mean=fit.mean(0); sd=fit.std(0)
S=LedoitWolf(assume_centered=True).fit((fit-mean)/sd)
from scipy.spatial.distance import mahalanobis
VI=np.linalg.inv(S.covariance_)
md=lambda r: mahalanobis((r-mean)/sd,np.zeros(d),VI)
q=np.array([2.5,-1.0,30.0])
print("z",repr(z(q).max()),int(z(q).argmax()),"maha",repr(md(q)), "shrink",S.shrinkage_)
rate=0.1
k=int(np.ceil((len(cal)+1)*(1-rate)))
print("thr", repr(np.sort([z(r).max() for r in cal])[k-1]), repr(np.sort([md(r) for r in cal])[k-1]))
# diagonal, d=100
n2,d2=60,100
Y=(lcg(n2*d2,7).reshape(n2,d2)*np.arange(1,d2+1)).astype(np.float32).astype(np.float64)
f=Y[0::2]; m=f.mean(0); s=f.std(0)
q2=np.arange(d2)*0.25
print("diag", repr(np.sqrt((((q2-m)/s)**2).sum())))
# total variation, chw 3x4x5 and hwc
n3=40
I=lcg(n3*60,3).astype(np.float32).astype(np.float64)
def tv_chw(x): x=x.reshape(3,4,5); a=np.abs(np.diff(x,axis=1)); b=np.abs(np.diff(x,axis=2)); return (a.sum()+b.sum())/(a.size+b.size)
def tv_hwc(x): x=x.reshape(4,5,3); a=np.abs(np.diff(x,axis=0)); b=np.abs(np.diff(x,axis=1)); return (a.sum()+b.sum())/(a.size+b.size)
I=I.reshape(n3,60)
for name,tv in (("chw",tv_chw),("hwc",tv_hwc)):
    v=np.array([tv(r) for r in I[0::2]]); mm=np.median(v); ms=stats.median_abs_deviation(v,scale='normal')
    qq=np.tile([0.9,-0.9],30)
    print(name, repr(abs(tv(qq)-mm)/ms))
